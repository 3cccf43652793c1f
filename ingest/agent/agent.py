"""The agent's two verbs, free of threads: ``look`` puts a message into the spool, ``push`` gets one out of it.

What the server refuses for good is dropped, counted and logged with the server's reason; everything else waits and is
sent again with the same id, in order. ``adopt`` takes other tags or another patience, as pushed settings may ask.
"""

import gzip
import logging
from collections.abc import Mapping

from ingest.agent import schedule
from ingest.agent.collect.host.itself import Counters
from ingest.agent.collect.threads import Crew
from ingest.agent.lines import bodies
from ingest.agent.server.push.base import Outcome, Push, Verdict
from ingest.agent.spool.spool import Spool
from spm import limits
from spm.clock import Clock, jitter

log = logging.getLogger("spm.agent")


class Agent:
    """Collectors on one side, a push on the other, the spool between them."""

    def __init__(
        self,
        *,
        crew: Crew,
        spool: Spool,
        push: Push,
        clock: Clock,
        tags: Mapping[str, str],
        counters: Counters,
        patience_s: float = limits.AGENT_LOOK_S,
    ) -> None:
        self.crew, self._spool, self._push, self._patience_s = crew, spool, push, patience_s
        self._clock, self._tags, self._counters = clock, tags, counters
        self._failures = 0
        self._failing_since_ms = 0
        self._refused = 0
        self._damaged = counters.errors = spool.damaged

    def adopt(self, *, tags: Mapping[str, str], patience_s: float) -> None:
        """From now on with these tags, waiting so long for collectors."""
        self._tags, self._patience_s = tags, patience_s

    def look(self) -> None:
        """Collect once and spool it, as a rule as one message."""
        began, at_ms = self._clock.monotonic(), self._clock.now_ms()
        batches = self.crew.look(at_ms, self._patience_s)
        for body, samples in bodies(batches, tags=self._tags):
            self._counters.sequence = self._spool.append(gzip.compress(body, 6, mtime=0), samples)
        self._counters.collect_ms = round((self._clock.monotonic() - began) * 1_000, 3)
        self._recount()

    def waiting_ms(self, now_ms: int) -> int:
        """How long pushes have failed; 0 while the server takes them."""
        return max(0, now_ms - self._failing_since_ms) if self._failures else 0

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
        if not self._failures:
            self._failing_since_ms = self._clock.now_ms()
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

    def _recount(self) -> None:
        self._counters.refused = self._refused
        self._counters.errors = self._damaged + self.crew.failures
        self._counters.dropped_messages_total, self._counters.dropped_samples_total = self._spool.dropped
        self._counters.spooled = self._spool.depth()
