"""Retractions: ranges of writes that no answer shows, until they are undone (rules 11 and 17).

A retraction is one row and hides every version that is stamped in its range of writes, has its time in the range of
data, comes from its source and belongs to a series that its matchers select. Rows of samples are never touched; an undo
sets the end and keeps the row, so that a chart "as known then" stays what it was. Hours and days remember the numbers
(``ids``) of the retractions they leave out; who finds others in force computes them anew. Enter by ``read``, ``add``,
``end``.
"""

import hashlib
import struct
from collections.abc import Callable, Collection, Iterable

import msgspec

from spm import limits
from spm.errors import Refused, StoreUnavailable
from spm.limits import HOUR_MS
from spm.store import keys
from spm.store.backends.base import Backend, Reader
from spm.store.encoding import blocks
from spm.store.ledger import counters
from spm.store.manifest import Entry
from spm.store.matchers import METRIC_NAME, Matcher

COLUMN = b"v"
_NUMBER_MAX = 1 << 63
_TRIES = 8  # of a check-and-put that others keep winning


class Retraction(msgspec.Struct, frozen=True, array_like=True):
    """What is taken out, by whom and why. Times are milliseconds; the two ranges and the conditions must all hold."""

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
    purged_ms: int = 0  # when its versions were deleted for good; 0: they are still there

    def active(self, at_ms: int | None = None) -> bool:
        """Whether it is in force: now, or as of a time."""
        if at_ms is None:
            return self.end_ms == 0
        return self.start_ms <= at_ms and (self.end_ms == 0 or self.end_ms > at_ms)

    def touches(self, hour: int, stamp_min_ms: int, stamp_max_ms: int, sources: Collection[str]) -> bool:
        """Whether any version of a unit with these stamps and sources may be in its range. Matchers do not count."""
        return (
            self.write_from_ms <= stamp_max_ms
            and stamp_min_ms <= self.write_to_ms
            and self.data_from_ms < (hour + 1) * HOUR_MS
            and self.data_to_ms > hour * HOUR_MS
            and (not self.source or self.source in sources)
        )

    @property
    def metric(self) -> str | None:
        """The one metric it is about, if a matcher names it."""
        return next((m.value for m in self.matchers if m.name == METRIC_NAME and m.op == "="), None)


def touching(found: Iterable[Retraction], entry: Entry, hour: int) -> tuple[Retraction, ...]:
    """Those that may hide something of a unit's compacted versions."""
    if not entry.state.generations and not entry.state.replay:
        return ()
    return tuple(r for r in found if r.touches(hour, entry.stamp_min_ms, entry.stamp_max_ms, entry.sources))


def ids(found: Iterable[Retraction]) -> bytes:
    """Their numbers, sorted, eight bytes each: equal for equal sets, and telling what differs when they are not."""
    marks = sorted({r.number for r in found})
    return struct.pack(f">{len(marks)}Q", *marks)


def numbers(packed: bytes) -> set[int]:
    """The numbers in such bytes."""
    return set(struct.unpack(f">{len(packed) // 8}Q", packed))


def of_day(hours: Iterable[tuple[int, bytes]]) -> bytes:
    """One mark for a shard's day, from (hour, ``ids``) of its hours; ``b""`` when no hour leaves anything out."""
    parts = sorted((hour, packed) for hour, packed in hours if packed)
    if not parts:
        return b""
    raw = b"".join(struct.pack(">II", hour, len(packed)) + packed for hour, packed in parts)
    return hashlib.blake2b(raw, digest_size=8).digest()


# --- rows -------------------------------------------------------------------------------------------------------------


def encode(retraction: Retraction) -> bytes:
    """The row's cell."""
    return blocks.encode_record(blocks.RETRACTION, retraction)


def decode(raw: bytes) -> Retraction:
    """The retraction of a cell; raises ``CorruptBlock``."""
    return blocks.decode_record(blocks.RETRACTION, raw, Retraction)


def read(reader: Reader, app: int) -> tuple[Retraction, ...]:
    """Every retraction of an app, ended ones too, by number. Raises ``CorruptBlock``."""
    rows = reader.scan("retractions", *keys.retraction_range(app), columns=[COLUMN])
    return tuple(decode(cells[COLUMN]) for _, cells in rows)


def add(store: Backend, app: int, draft: Retraction) -> Retraction:
    """Put a retraction in force, under a number of its own. Raises ``Refused`` when the app has too many."""
    active = sum(r.active() and not r.purged_ms for r in read(store, app))
    if active >= limits.RETRACTIONS_ACTIVE_MAX:
        raise Refused(
            "too many retractions are in force",
            got=active,
            wanted=f"fewer than {limits.RETRACTIONS_ACTIVE_MAX}",
            remedy="Undo some, or purge them: each is looked at by every read.",
        )
    number = counters.take(store, b"retractions", below=_NUMBER_MAX)
    made = msgspec.structs.replace(draft, number=number, end_ms=0, purged_ms=0)
    key, cell = keys.retraction(app, number), encode(made)
    try:
        if store.check_and_put("retractions", key, COLUMN, None, cell):
            return made
    except StoreUnavailable:
        [row] = store.get("retractions", [key], [COLUMN])
        if row is not None:
            return made
        raise
    raise AssertionError(f"BUG: the number {number} of a retraction was given twice")


def end(store: Backend, app: int, number: int, now_ms: int) -> Retraction:
    """Undo one: what it hid counts again. Raises ``Refused`` when that is done already or cannot be any more."""

    def ended(was: Retraction) -> Retraction:
        if was.purged_ms:
            raise Refused(f"retraction {number} was purged", remedy="Its samples are deleted; send them again.")
        if was.end_ms:
            raise Refused(f"retraction {number} was undone already")
        return msgspec.structs.replace(was, end_ms=max(now_ms, was.start_ms + 1))

    return _change(store, app, number, ended)


def mark_purged(store: Backend, app: int, number: int, now_ms: int) -> Retraction:
    """Note that its versions are about to be deleted for good. Repeating it changes nothing."""

    def purged(was: Retraction) -> Retraction:
        if was.end_ms:
            raise Refused(f"retraction {number} is not in force", remedy="Only what is retracted can be purged.")
        return was if was.purged_ms else msgspec.structs.replace(was, purged_ms=now_ms)

    return _change(store, app, number, purged)


def _change(store: Backend, app: int, number: int, change: Callable[[Retraction], Retraction]) -> Retraction:
    key, sent = keys.retraction(app, number), None
    for _ in range(_TRIES):
        [row] = store.get("retractions", [key], [COLUMN])
        if row is None:
            raise Refused(f"there is no retraction {number} in this app")
        was = decode(row[COLUMN])
        if was == sent:
            return was  # its answer was lost, but it is in
        sent = change(was)
        try:
            if sent == was or store.check_and_put("retractions", key, COLUMN, row[COLUMN], encode(sent)):
                return sent
        except StoreUnavailable:
            continue
    raise StoreUnavailable(f"retraction {number} kept changing: try again")
