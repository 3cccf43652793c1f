"""Whether the client of a request is still there: the watch that a query's budget looks through.

The web server hands its socket along (gunicorn does); the system is asked whether the other side has closed it, without
reading from it, and no more often than every `QUERY_LOOK_S`. Without a socket everybody counts as there. Enter by
`watch_of`.
"""

import select
import socket
from collections.abc import Mapping
from typing import Any

from spm.clock import Clock, SystemClock
from spm.errors import QueryCancelled
from spm.limits import QUERY_LOOK_S
from spm.query.request.budget import Watch, nobody

# Half-closed counts as gone: clients that send "nothing more" before they read are none of those that ask here.
_GONE = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR


def watch_of(environ: Mapping[str, Any], clock: Clock | None = None) -> Watch:
    """The watch over the client of a request."""
    found = environ.get("gunicorn.socket")
    return _Watch(found, clock or SystemClock()) if isinstance(found, socket.socket) else nobody


class _Watch:
    """Raises `QueryCancelled` once the other side of the connection has gone."""

    def __init__(self, connection: socket.socket, clock: Clock) -> None:
        self._poll, self._clock = select.poll(), clock
        self._poll.register(connection, _GONE)
        self._next_s = clock.monotonic() + QUERY_LOOK_S

    def __call__(self) -> None:
        now = self._clock.monotonic()
        if now < self._next_s:
            return
        self._next_s = now + QUERY_LOOK_S
        if self._poll.poll(0):
            raise QueryCancelled("the client has gone away")
