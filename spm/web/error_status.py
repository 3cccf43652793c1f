"""The table of HTTP statuses that all interfaces share: which error is answered with which status.

An error takes the status of the nearest class in its line of ancestors. Each interface adds, as ``_STATUSES``, those of
its own errors (no token, an unknown content type) and of errors that it means differently. Enter by ``status_of`` and
``text_of``.
"""

import logging
from collections.abc import Mapping

from django.db import InterfaceError, OperationalError

from spm.clock import Clock, SystemClock
from spm.errors import (
    BadMessage,
    BadQuery,
    LimitExceeded,
    QueryCancelled,
    QueryFailed,
    QueryRefused,
    QueryTooLarge,
    Refused,
    SpmError,
    StillCompiling,
)

CLIENT_CLOSED_REQUEST = 499  # as nginx and Prometheus log it: nobody reads the answer
RETRYABLE = frozenset({429, 503})  # answers with one of these say when to try again
Statuses = Mapping[type[Exception], int]

DATABASE_AWAY = (OperationalError, InterfaceError)
_DATABASE_TEXT = "the database does not answer now; try again after Retry-After seconds"

_DATABASE_FULL_TEXT = "the database's disk is full: nothing is changed until it has room again; reads go on"
_FULL = ("database or disk is full", "No space left")  # in SQLite's words, and in PostgreSQL's
_HOSTS_EVERY_S = 60.0

HOST_REFUSED = (
    "requests to this host name are not served here: the operator sets SPM_BASE_URL to the address that people use,"
    " and names others in SPM_ALLOWED_HOSTS"
)

STATUSES: Statuses = {
    **dict.fromkeys(DATABASE_AWAY, 503),
    BadMessage: 400,
    BadQuery: 400,
    Refused: 409,
    LimitExceeded: 422,
    QueryFailed: 422,
    QueryTooLarge: 422,
    QueryRefused: 429,
    QueryCancelled: CLIENT_CLOSED_REQUEST,
    SpmError: 503,  # the store, the queue or time was not there: a later try may succeed
}
BODY_STATUSES: Statuses = {LimitExceeded: 413}  # of interfaces that take bodies of samples


def status_of(error: Exception, special: Statuses | None = None) -> int:
    """Return the HTTP status of an error; ``special`` goes before the table. An error of no known class is 500."""
    statuses = {**STATUSES, **(special or {})}
    return next((statuses[kind] for kind in type(error).__mro__ if kind in statuses), 500)


def text_of(error: Exception) -> str:
    """Return what a client may read of an error: a database's own words name its host, port and tables."""
    if not isinstance(error, DATABASE_AWAY):
        return str(error)
    return _DATABASE_FULL_TEXT if any(words in str(error) for words in _FULL) else _DATABASE_TEXT


class ForeignHosts(logging.Filter):
    """Lets one line a minute through about hosts that are not ours, as a warning without a traceback.

    Anybody may send such requests, as many as they like; those that are not shown are counted.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__()
        self._clock = clock or SystemClock()
        self._next_s, self._hidden = float("-inf"), 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this line is shown."""
        now_s = self._clock.monotonic()
        if now_s < self._next_s:
            self._hidden += 1
            return False
        text = record.getMessage()[:200]
        record.msg = f"{text} ({self._hidden} further ones since the last such line)" if self._hidden else text
        record.args, record.exc_info, record.exc_text = (), None, None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        self._next_s, self._hidden = now_s + _HOSTS_EVERY_S, 0
        return True


class WaitingPages(logging.Filter):
    """Shortens the report of a page that waits for its kernels to one line, as a warning that says how far they are."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return true: every line is shown."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, StillCompiling):
            record.msg, record.args = f"{record.getMessage()}: {error}", ()
            record.exc_info, record.exc_text = None, None
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        return True
