"""The agent's two verbs, free of threads: ``look`` puts a message into the spool, ``push`` gets one out of it.

One collector that fails costs its own points, never the others'. What the server refuses for good is dropped, counted
and logged with the server's reason; everything else waits and is sent again with the same id, in order.
"""

import gzip
import logging
from collections.abc import Mapping, Sequence

from ingest.agent import schedule
from ingest.agent.collect import Collector
from ingest.agent.collect.itself import Counters
from ingest.agent.lines import Point, render, samples_in
from ingest.agent.push.base import Outcome, Push, Verdict
from ingest.agent.spool import Spool
from spm import limits
from spm.clock import Clock, jitter

log = logging.getLogger("spm.agent")


class Agent:
    """Collectors on one side, a push on the other, the spool between them."""

    def __init__(
        self,
        *,
        collectors: Mapping[str, Collector],
        spool: Spool,
        push: Push,
        clock: Clock,
        tags: Mapping[str, str],
        counters: Counters,
    ) -> None:
        self._collectors, self._spool, self._push = collectors, spool, push
        self._clock, self._tags, self._counters = clock, tags, counters
        self._failures = 0
        self._refused = 0
        counters.errors += spool.damaged

    def look(self) -> None:
        """Collect once and spool it as one message."""
        began, at_ms = self._clock.monotonic(), self._clock.now_ms()
        points = self._collect()
        body = render(points, tags=self._tags, at_ms=at_ms)
        if body:
            self._counters.sequence = self._spool.append(gzip.compress(body, 6, mtime=0), samples_in(points))
        self._counters.collect_ms = round((self._clock.monotonic() - began) * 1_000, 3)
        self._recount()

    def push(self) -> float | None:
        """Send the oldest message. Returns the seconds to wait before the next, or None if none waits."""
        message = self._spool.head()
        if message is None:
            return None
        outcome = self._push.send(message)
        if outcome.verdict is Verdict.LATER:
            return self._wait(outcome)
        if outcome.verdict is Verdict.REFUSED:
            self._refused += 1
            log.error("message %d dropped, the server refuses it: %s", message.sequence, outcome.reason)
            self._spool.drop(message)
        else:
            self._counters.sent += 1
            self._spool.settle(message.sequence)
        if self._failures:
            log.info("the server answers again after %d failed pushes", self._failures)
        self._failures = 0
        self._recount()
        return 0.0

    def _wait(self, outcome: Outcome) -> float:
        self._failures += 1
        self._counters.push_failures += 1
        if self._failures == 1:
            log.warning("the server does not take messages, they wait in the spool: %s", outcome.reason)
        self._spool.sync()
        wait_s = schedule.backoff_s(
            self._failures,
            base_s=limits.AGENT_BACKOFF_BASE_S,
            most_s=limits.AGENT_BACKOFF_MAX_S,
            asked_s=outcome.retry_after_s,
        )
        return jitter(wait_s, limits.AGENT_BACKOFF_JITTER)

    def _collect(self) -> Sequence[Point]:
        points: list[Point] = []
        for name, collector in self._collectors.items():
            try:
                points += collector()
            except Exception:  # whatever a kernel or a driver comes up with must not silence the rest
                self._counters.errors += 1
                log.exception("the collector %s failed", name)
        return points

    def _recount(self) -> None:
        self._counters.refused = self._refused
        self._counters.dropped_messages_total, self._counters.dropped_samples_total = self._spool.dropped
        self._counters.spooled = self._spool.depth()
