"""Retractions: ranges of writes that no answer shows until they are undone (PROTOCOL 11, 17).

A retraction is one row. It hides every version that is stamped in its range of writes, has its time in its range of
data, comes from its source and belongs to a series that its matchers select. Rows of samples never change. An undo
sets the end and keeps the row, so that a chart "as known then" stays what it was. Rollup rows record the numbers
(``ids``) of the retractions that they leave out; when others are in force, the rollup rows are computed again. Enter by
``read``, ``add`` and ``end``.
"""

import hashlib
import struct
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from spm import limits
from spm.errors import Refused, StoreUnavailable
from spm.limits import HOUR_MS
from spm.store import keys
from spm.store.backends.base import Backend, Reader
from spm.store.check_and_put import replace_cell
from spm.store.encoding import blocks
from spm.store.ledger import counters
from spm.store.manifest import Entry
from spm.store.matchers import METRIC_NAME, Matcher

COLUMN = b"v"
DRAFT = 0  # the number of a retraction that is only planned: the store has none with it
_NUMBER_MAX = 1 << 63


class Retraction(msgspec.Struct, frozen=True, array_like=True):
    """What is retracted, by whom and why. Times are milliseconds; a version is hidden if it meets all conditions."""

    number: int
    start_ms: int  # when it was made
    end_ms: int  # when it was undone; 0: it is in force
    write_from_ms: int  # stamps, both ends included
    write_to_ms: int
    data_from_ms: int  # times of samples: data_from < ts <= data_to
    data_to_ms: int
    source: str  # "": of any source
    matchers: tuple[Matcher, ...]
    reason: str
    author: str
    erased_ms: int = 0  # when its versions were erased for good; 0: they are still there

    def active(self, at_ms: int | None = None) -> bool:
        """Whether it is in force now, or was as of a time."""
        if at_ms is None:
            return self.end_ms == 0
        return self.start_ms <= at_ms and (self.end_ms == 0 or self.end_ms > at_ms)

    def touches(self, hour: int, stamp_min_ms: int, stamp_max_ms: int, sources: Collection[str]) -> bool:
        """Whether it may hide a version of a HourShard with these stamps and sources. Matchers are not considered.

        No sources: they are not known, so it may hold versions of any.
        """
        return (
            self.write_from_ms <= stamp_max_ms
            and stamp_min_ms <= self.write_to_ms
            and self.data_from_ms < (hour + 1) * HOUR_MS
            and self.data_to_ms > hour * HOUR_MS
            and (not self.source or not sources or self.source in sources)
        )

    @property
    def metric(self) -> str | None:
        """The metric it is about, if a matcher names one."""
        return next((m.value for m in self.matchers if m.name == METRIC_NAME and m.op == "="), None)


def touching(retractions: Iterable[Retraction], entry: Entry, hour: int) -> tuple[Retraction, ...]:
    """The retractions that may hide a version in the generations or on the replay list of an entry."""
    if not entry.state.generations and not entry.state.replay:
        return ()
    return tuple(r for r in retractions if r.touches(hour, entry.stamp_min_ms, entry.stamp_max_ms, entry.sources))


def ids(retractions: Iterable[Retraction]) -> bytes:
    """Pack the numbers of retractions, sorted, eight bytes each: equal for equal sets."""
    distinct = sorted({r.number for r in retractions})
    return struct.pack(f">{len(distinct)}Q", *distinct)


def numbers(packed: bytes) -> set[int]:
    """Unpack the numbers that ``ids`` packed."""
    return set(struct.unpack(f">{len(packed) // 8}Q", packed))


def day_fingerprint(hours: Iterable[tuple[int, bytes]]) -> bytes:
    """A fingerprint of a shard's day from (hour, ``ids``) of its hours; ``b""`` when no hour leaves anything out."""
    parts = sorted((hour, packed) for hour, packed in hours if packed)
    if not parts:
        return b""
    raw = b"".join(struct.pack(">II", hour, len(packed)) + packed for hour, packed in parts)
    return hashlib.blake2b(raw, digest_size=8).digest()


# --- rows -------------------------------------------------------------------------------------------------------------


def encode(retraction: Retraction) -> bytes:
    """Encode the row's cell."""
    return blocks.encode_record(blocks.RETRACTION, retraction)


def decode(raw: bytes) -> Retraction:
    """Decode a cell; raise ``CorruptBlock``."""
    return blocks.decode_record(blocks.RETRACTION, raw, Retraction)


def read(reader: Reader, app: int) -> tuple[Retraction, ...]:
    """Read every retraction of an app, also ended ones, by number; raise ``CorruptBlock``."""
    rows = reader.scan("retractions", *keys.retraction_range(app), columns=[COLUMN])
    return tuple(decode(cells[COLUMN]) for _, cells in rows)


def add(store: Backend, app: int, draft: Retraction) -> Retraction:
    """Put a retraction in force under a new number; raise ``Refused`` when the app has too many."""
    active = sum(r.active() and not r.erased_ms for r in read(store, app))
    if active >= limits.RETRACTIONS_ACTIVE_MAX:
        raise Refused(
            "too many retractions are in force",
            got=active,
            wanted=f"fewer than {limits.RETRACTIONS_ACTIVE_MAX}",
            remedy="Undo some, or erase them: every read checks each of them.",
        )
    number = counters.take(store, b"retractions", below=_NUMBER_MAX)
    retraction = msgspec.structs.replace(draft, number=number, end_ms=0, erased_ms=0)
    key, cell = keys.retraction(app, number), encode(retraction)
    try:
        if store.check_and_put("retractions", key, COLUMN, None, cell):
            return retraction
    except StoreUnavailable:
        [row] = store.get("retractions", [key], [COLUMN])
        if row is not None:
            return retraction
        raise
    raise AssertionError(f"BUG: the number {number} of a retraction was given twice")


def end(store: Backend, app: int, number: int, now_ms: int) -> Retraction:
    """Undo a retraction; raise ``Refused`` when it was undone or erased before."""

    def ended(was: Retraction) -> Retraction:
        if was.erased_ms:
            raise Refused(f"retraction {number} was erased", remedy="Its samples are deleted; send them again.")
        if was.end_ms:
            raise Refused(f"retraction {number} was undone already")
        return msgspec.structs.replace(was, end_ms=max(now_ms, was.start_ms + 1))

    return _change(store, app, number, ended)


def mark_erased(store: Backend, app: int, number: int, now_ms: int) -> Retraction:
    """Note that its versions are about to be erased for good. Repeating it changes nothing."""

    def purged(was: Retraction) -> Retraction:
        if was.end_ms:
            raise Refused(f"retraction {number} is not in force", remedy="Only retracted samples can be erased.")
        return was if was.erased_ms else msgspec.structs.replace(was, erased_ms=now_ms)

    return _change(store, app, number, purged)


def _change(store: Backend, app: int, number: int, change: Callable[[Retraction], Retraction]) -> Retraction:
    def changed(row: Mapping[bytes, bytes]) -> tuple[bytes, Retraction]:
        if COLUMN not in row:
            raise Refused(f"there is no retraction {number} in this app")
        present = decode(row[COLUMN])
        retraction = change(present)
        return row[COLUMN] if retraction == present else encode(retraction), retraction

    error = f"retraction {number} kept changing: try again"
    key = keys.retraction(app, number)
    return replace_cell(store, "retractions", key, changed, error=error, retry_lost_answers=True)
