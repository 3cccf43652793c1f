"""Cancels a query when the client of its request has closed the connection.

The web server says whether it has (``spm.client_gone`` of the environ). It is asked at most once in
``QUERY_CLIENT_CHECK_S``, whenever evaluation checks its deadline. Under a server that does not say it, a query is never
cancelled. Enter by `cancellation_of`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from spm.clock import Clock, SystemClock
from spm.errors import QueryCancelled
from spm.limits import QUERY_CLIENT_CHECK_S
from spm.query.request.budget import Cancellation
from spm.query.request.pacing import process_pacer


def cancellation_of(environ: Mapping[str, Any], clock: Clock | None = None) -> Cancellation:
    """Return the cancellation of a request's queries. Whenever it is asked, a long query gives way, too."""
    gone = environ.get("spm.client_gone")
    return process_pacer().tick if gone is None else _ClientCancellation(gone, clock or SystemClock())


class _ClientCancellation:
    """Raises `QueryCancelled` once the client has closed the connection."""

    def __init__(self, gone: Callable[[], bool], clock: Clock) -> None:
        self._gone, self._clock = gone, clock
        self._next_s = clock.monotonic() + QUERY_CLIENT_CHECK_S

    def __call__(self) -> None:
        process_pacer().tick(self._check)
        self._check()

    def _check(self) -> None:
        now = self._clock.monotonic()
        if now < self._next_s:
            return
        self._next_s = now + QUERY_CLIENT_CHECK_S
        if self._gone():
            raise QueryCancelled("the client has gone away")
