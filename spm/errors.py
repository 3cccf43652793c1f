"""The catalogue of errors: each says who can do something about it.

The data is wrong: ``BadMessage``, ``CorruptBlock``, ``BadQuery``. Another system fails, and a retry may help:
``StoreUnavailable``, ``AppUnavailable``, ``QueueUnavailable``. A rule forbids the act: ``Refused``, ``LimitExceeded``,
``QueryTooLarge``, ``LoginRefused``. A stored row that must be there is missing: ``IntegrityError``. Our own mistakes
are ``assert`` with "BUG:", never one of these. The one module that imports a foreign library translates its exceptions
into these.
"""

from collections.abc import Mapping, Sequence


class SpmError(Exception):
    """Root of all errors that this system raises on purpose."""


class Explained(SpmError):
    """An error that says what was got, what was wanted, and what to do about it."""

    def __init__(self, what: str, *, got: object = None, wanted: object = None, remedy: str = "") -> None:
        self.what, self.got, self.wanted, self.remedy = what, got, wanted, remedy
        parts = [what]
        if got is not None:
            parts.append(f"got {got}")
        if wanted is not None:
            parts.append(f"wanted {wanted}")
        super().__init__("; ".join(parts) + (f". {remedy}" if remedy else ""))


class BadMessage(Explained):
    """A sender's data cannot be accepted, now or later: sending it again does not help."""


class CorruptBlock(Explained):
    """Stored or transmitted bytes fail their checksum, version or shape. They are never shown as numbers."""


class LimitExceeded(Explained):
    """A bound of ``spm.limits`` was crossed."""


class Refused(Explained):
    """A rule of the system forbids the act, although the request is well formed."""


class LoginRefused(SpmError):
    """A password that is not checked now: too many wrong ones came before it, or too many are being checked.

    ``retry_after_s``: seconds until a try can be worth it.
    """

    def __init__(self, what: str, retry_after_s: int) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(what)


class IntegrityError(SpmError):
    """A stored row that the manifest names is missing: never to be taken for "no data"."""


class StoreUnavailable(SpmError):
    """The store did not answer, or its answer is unknown. Send exactly these bytes again.

    ``rest``: of a put, the steps that are not confirmed, if the store knows them; only these must be sent again.
    """

    rest: Sequence[tuple[str, Sequence[tuple[bytes, Mapping[bytes, bytes]]]]] | None = None


class NotInMemory(SpmError):
    """A read that may only use what this process has in memory would have to read the store, decode or wait."""


class StoreDamaged(StoreUnavailable):
    """The store's file is not whole. Nothing is read from it; a copy must be put back."""


class StoreFull(StoreUnavailable):
    """The store has no room left. Reads go on; writes wait for space."""


class StillCompiling(StoreUnavailable):
    """The first start is compiling the kernels that are needed, in other processes. Nothing was done."""


class CellContended(StoreUnavailable):
    """Other writers changed a cell each time between our read and our check-and-put: try again later."""


class AppUnavailable(Explained, StoreUnavailable):
    """One app's data cannot be written now, for a reason that is not in the message; other apps' data can.

    Our own rows of the app are damaged, or this process has no memory for its messages. Callers keep the messages and
    try again; a dead letter would blame the sender.
    """


class PlacementUnfit(AppUnavailable):
    """This process cannot place an app's data: an operator's placement function is missing, or is another one.

    Nothing is read or written until the function is there; callers retry as they do for a store that does not answer.
    """


# What may be wrong with one app alone: work for many apps goes on with the others.
ONE_APP_ERRORS = (AppUnavailable, CellContended, CorruptBlock, IntegrityError, LimitExceeded)


class QueueUnavailable(SpmError):
    """The transport did not confirm. The message may or may not be in it: send it again with the same id."""


class BadQuery(SpmError):
    """A query is malformed or asks for something unknown; ``position`` is the character where, if known."""

    def __init__(self, what: str, position: int | None = None) -> None:
        self.position = position
        super().__init__(what)


class QueryTooLarge(SpmError):
    """A well-formed query needs more than its limits allow."""


class QueryFailed(SpmError):
    """A well-formed query that fails on its data, such as by two results with equal labels."""


class QueryTimeout(SpmError):
    """A query ran longer than it may."""


class QueryRefused(SpmError):
    """A query that may be sent again later: too many queries of its organisation are running."""


class QueryCancelled(SpmError):
    """The client has disconnected: nobody waits for the answer."""
