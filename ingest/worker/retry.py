"""Repeats what the store did not answer, with growing pauses, for as long as the deliveries can still be settled.

Enter by ``StoreRetry.call``. It stops when the time is up, the worker stops, or no delivery of the batch is ours.
"""

import logging
import threading
from collections.abc import Callable, Collection
from typing import TypeVar

from django.db import DatabaseError

from ingest.transport.delivery import AckHandle
from ingest.worker.inbox import Idle
from ingest.worker.interfaces import DeliverySource
from ingest.worker.metrics import ConsumerTally
from spm import limits
from spm.clock import Clock
from spm.errors import AppUnavailable, StoreUnavailable

log = logging.getLogger(__name__)
A = TypeVar("A")
T = TypeVar("T")
_FIRST_PAUSE_S = 0.1


class StoreRetry:
    """The retries of one consumer. ``source`` is set before the first delivery."""

    def __init__(
        self,
        clock: Clock,
        idle: Idle,
        tally: ConsumerTally,
        stopping: threading.Event,
        wait: Callable[[float], object],
    ) -> None:
        self._clock, self._idle, self._tally = clock, idle, tally
        self._stopping, self._wait = stopping, wait
        self.source: DeliverySource | None = None

    def call(self, act: Callable[[], T], handles: Collection[AckHandle], end_ms: int) -> T:
        """Return what ``act`` returns; repeat it on ``StoreUnavailable`` until ``end_ms``, then raise that."""
        wait_s = _FIRST_PAUSE_S
        while True:
            try:
                return act()
            except AppUnavailable:
                raise  # the other apps of the batch need not wait
            except StoreUnavailable as error:
                self._pause(wait_s, handles, end_ms, error)
                wait_s = min(2 * wait_s, limits.CONSUME_BACK_OFF_S)

    def _pause(self, wait_s: float, handles: Collection[AckHandle], end_ms: int, error: StoreUnavailable) -> None:
        """Wait before the next attempt, or raise ``error`` when there is to be none."""
        assert self.source is not None, "BUG: a consumer without its source"
        ours = any(map(self.source.holds, handles))
        now_ms = round(self._clock.monotonic() * 1000)
        if not ours or self._stopping.is_set() or now_ms + 1000 * wait_s > end_ms:
            raise error
        log.warning("the store does not answer, next attempt in %.1f s: %s", wait_s, error)
        self._tally.retries += 1
        with self._idle.waiting():  # more workers would not help
            self._wait(wait_s)


def translate_database_error(act: Callable[[A], T], argument: A) -> T:
    """Call a part that asks the database; ``StoreUnavailable`` when that does not answer, so that it is repeated."""
    try:
        return act(argument)
    except DatabaseError as error:
        raise StoreUnavailable(f"the database does not answer: {error}") from error
