"""Cancels a query when the client of its request has closed the connection.

The web server passes its socket along (gunicorn does). The operating system is asked whether the other side has closed
it, without reading from it, at most once in ``QUERY_CLIENT_CHECK_S``, whenever evaluation checks its deadline. Without
a socket a query is never cancelled. Enter by `cancellation_of`.
"""

import select
import socket
from collections.abc import Mapping
from typing import Any

from spm.clock import Clock, SystemClock
from spm.errors import QueryCancelled
from spm.limits import QUERY_CLIENT_CHECK_S
from spm.query.request.budget import Cancellation, never_cancelled

# A half-closed connection counts as closed: no client of ours shuts down its sending side before it reads.
_CLOSED = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR


def cancellation_of(environ: Mapping[str, Any], clock: Clock | None = None) -> Cancellation:
    """Return the cancellation of a request's queries."""
    connection = environ.get("gunicorn.socket")
    return (
        _ClientCancellation(connection, clock or SystemClock())
        if isinstance(connection, socket.socket)
        else never_cancelled
    )


class _ClientCancellation:
    """Raises `QueryCancelled` once the other side has closed the connection."""

    def __init__(self, connection: socket.socket, clock: Clock) -> None:
        self._poll, self._clock = select.poll(), clock
        self._poll.register(connection, _CLOSED)
        self._next_s = clock.monotonic() + QUERY_CLIENT_CHECK_S

    def __call__(self) -> None:
        now = self._clock.monotonic()
        if now < self._next_s:
            return
        self._next_s = now + QUERY_CLIENT_CHECK_S
        if self._poll.poll(0):
            raise QueryCancelled("the client has gone away")
