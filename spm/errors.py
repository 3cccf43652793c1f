"""The catalogue of errors: whose turn it is when something goes wrong.

Data wrong: ``BadMessage``, ``CorruptBlock``, ``BadQuery``. The world unwell and worth a retry: ``StoreUnavailable``,
``StrategyUnfit``, ``QueueUnavailable``. A rule says no: ``Refused``, ``LimitExceeded``, ``QueryTooLarge``. A stored row
that must be there is not: ``IntegrityError``. Our own mistakes are ``assert`` with "BUG:", never one of these. Foreign
exceptions are translated into these in the one module that imports the foreign library.
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
    """What a sender sent cannot be taken, now or later: sending it again does not help."""


class CorruptBlock(Explained):
    """Stored or transmitted bytes fail their checksum, version or shape. They are never shown as numbers."""


class LimitExceeded(Explained):
    """A bound of ``spm.limits`` was crossed."""


class Refused(Explained):
    """A rule of the system forbids the act, although it was well formed."""


class IntegrityError(SpmError):
    """A stored row that the manifest names is missing: never to be taken for "no data"."""


class StoreUnavailable(SpmError):
    """The store did not answer, or its answer is unknown. Send the very same bytes again.

    ``rest``: of a put, the steps that are not confirmed, where the store knows them: the others need not be sent again.
    """

    rest: Sequence[tuple[str, Sequence[tuple[bytes, Mapping[bytes, bytes]]]]] | None = None


class StoreFull(StoreUnavailable):
    """The store has no room left. Reads go on; writes wait for space."""


class StrategyUnfit(Explained, StoreUnavailable):
    """This process cannot tell where an app's data lies: an operator's strategy is missing, or is another one.

    Nothing is read or written until it is there; like a store that does not answer, it is asked again.
    """


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
    """A well-formed query that the data it meets cannot satisfy, such as two results with the same labels."""


class QueryTimeout(SpmError):
    """A query ran longer than it may."""


class QueryRefused(SpmError):
    """A query that might be answered later: too many of the same organisation are being answered now."""


class QueryCancelled(SpmError):
    """Whoever asked has gone away: nobody waits for the answer."""
