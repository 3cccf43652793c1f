"""The table of HTTP statuses that all interfaces share: which error is answered with which status.

An error takes the status of the nearest class in its line of ancestors. Each interface adds, as ``_STATUSES``, those of
its own errors (no token, an unknown content type) and of errors that it means differently. Enter by ``status_of`` and
``text_of``.
"""

from collections.abc import Mapping

from django.db import InterfaceError, OperationalError

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
)

CLIENT_CLOSED_REQUEST = 499  # as nginx and Prometheus log it: nobody reads the answer
RETRYABLE = frozenset({429, 503})  # answers with one of these say when to try again
Statuses = Mapping[type[Exception], int]

DATABASE_AWAY = (OperationalError, InterfaceError)
_DATABASE_TEXT = "the database does not answer now; try again after Retry-After seconds"

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
    return _DATABASE_TEXT if isinstance(error, DATABASE_AWAY) else str(error)
