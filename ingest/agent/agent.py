"""The agent's two operations, without threads: ``collect`` puts a message into the spool, ``push`` sends the oldest.

A message that the server rejects permanently is dropped, counted and logged with the server's reason. Every other
message waits and is sent again with the same id, in order. ``apply`` changes labels and timeout, for pushed settings.
"""

import gzip
import logging
from collections.abc import Mapping

from ingest.agent import schedule
from ingest.agent.collect.host.own_metrics import Counters
from ingest.agent.collect.threads import CollectorThreads
from ingest.agent.lines import split_bodies
from ingest.agent.server.push.base import Outcome, Push, Verdict
from ingest.agent.spool.spool import Spool
from spm import limits
from spm.clock import Clock, jitter

log = logging.getLogger("spm.agent")


class Agent:
    """Moves points from the collectors into the spool, and messages from the spool to the server."""

    def __init__(
        self,
        *,
        collectors: CollectorThreads,
        spool: Spool,
        push: Push,
        clock: Clock,
        labels: Mapping[str, str],
        counters: Counters,
        collect_timeout_s: float = limits.AGENT_COLLECT_S,
    ) -> None:
        self.collectors, self._spool, self._push, self._collect_timeout_s = collectors, spool, push, collect_timeout_s
        self._clock, self._labels, self._counters = clock, labels, counters
        self._failures = 0
        self._failing_since_ms = 0
        self._rejected = 0
        self._damaged = counters.errors = spool.damaged

    def apply(self, *, labels: Mapping[str, str], collect_timeout_s: float) -> None:
        """Use these labels and this timeout of collectors from now on."""
        self._labels, self._collect_timeout_s = labels, collect_timeout_s

    def collect(self) -> None:
        """Collect once and put the points into the spool, usually as one message."""
        started, at_ms = self._clock.monotonic(), self._clock.now_ms()
        batches = self.collectors.collect(at_ms, self._collect_timeout_s)
        for body, samples in split_bodies(batches, labels=self._labels):
            self._counters.sequence = self._spool.append(gzip.compress(body, 6, mtime=0), samples)
        self._counters.collect_ms = round((self._clock.monotonic() - started) * 1_000, 3)
        self._update_counters()

    def failing_ms(self, now_ms: int) -> int:
        """Returns for how long pushes have failed; 0 while the server accepts them."""
        return max(0, now_ms - self._failing_since_ms) if self._failures else 0

    def push(self) -> float | None:
        """Send the oldest message. Returns the seconds to wait before the next one, or None if the spool is empty."""
        message = self._spool.head()
        if message is None:
            return None
        outcome = self._push.send(message)
        if outcome.verdict is Verdict.RETRY:
            return self._wait(outcome)
        if outcome.verdict is Verdict.REJECTED:
            self._rejected += 1
            log.error("message %d dropped, the server rejects it: %s", message.sequence, outcome.reason)
            self._spool.discard(message)
        else:
            self._counters.sent += 1
            self._spool.acknowledge(message.sequence)
        if self._failures:
            log.info("the server answers again after %d failed pushes", self._failures)
        self._failures = 0
        self._update_counters()
        return 0.0

    def _wait(self, outcome: Outcome) -> float:
        if not self._failures:
            self._failing_since_ms = self._clock.now_ms()
        self._failures += 1
        self._counters.push_failures += 1
        if self._failures == 1:
            log.warning("the server does not accept messages, they wait in the spool: %s", outcome.reason)
        self._spool.sync()
        wait_s = schedule.backoff_s(
            self._failures,
            base_s=limits.AGENT_BACKOFF_BASE_S,
            most_s=limits.AGENT_BACKOFF_MAX_S,
            requested_s=outcome.retry_after_s,
        )
        return jitter(wait_s, limits.AGENT_BACKOFF_JITTER)

    def _update_counters(self) -> None:
        self._counters.refused = self._rejected
        self._counters.errors = self._damaged + self.collectors.failures
        self._counters.dropped_messages_total, self._counters.dropped_samples_total = self._spool.dropped
        self._counters.spooled = self._spool.depth()
