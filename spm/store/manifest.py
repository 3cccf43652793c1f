"""The manifest: one cell per (app, day) that says which rows are in force. Pure values; nothing here reads or writes.

A cell is changed only by check-and-put of the whole value, and its nonce never repeats (PROTOCOL 4). Everything a
reader must find is named here: generations, the replay list, hours in force and what they were made of. ``Month`` is
the same for days. Words: PROTOCOL 4, 10, 11, 14, 16, 18.
"""

import hashlib
import struct
from collections.abc import Iterable

import msgspec
import numpy as np

from spm.store.encoding import blocks

OPEN, SEALING, SEALED, EXPIRED = range(
    4
)  # states of an hour (PROTOCOL 23): raw is gone when sealed, hours too when expired


class Generation(msgspec.Struct, frozen=True, array_like=True):
    """One compacted form of a unit. Pages: by the top bits of a series id, and by timeline number >> shift."""

    number: int  # run:40 ‖ attempt:24, unique for ever, without order
    page_bits: int = 0
    timeline_shift: int = 31
    form: int = 1  # of the rows it wrote; newer forms add, and a run may rewrite older ones

    def page_of(self, series: int) -> int:
        """The chunk page that holds ``series``."""
        return series >> (64 - self.page_bits) if self.page_bits else 0


class State(msgspec.Struct, frozen=True, array_like=True):
    """What is in force for a unit: its generations, oldest first, and batches to be read from their blocks again."""

    generations: tuple[Generation, ...] = ()
    replay: tuple["Replay", ...] = ()


class Replay(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A batch that must be read from its block, although its pending cell is gone: where that block lies."""

    ingest_ms: int
    batch: int


class PreviousEntry(msgspec.Struct, frozen=True, array_like=True):
    """A state that a run replaced, whole; ``together``: units that can only be rolled back in company."""

    run: int
    state: State
    together: tuple[tuple[int, int], ...] = ()


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """All that the manifest knows of one unit (shard, hour)."""

    state: State = State()
    history: tuple[PreviousEntry, ...] = ()
    stamp_min_ms: int = 0
    stamp_max_ms: int = 0
    sources: tuple[str, ...] = ()


class HourInputs(msgspec.Struct, frozen=True, array_like=True):
    """What one hour's hours were made of: the entry's fingerprint, the retractions left out, the newest stamp.

    ``retractions`` are the numbers (``retractions.ids``) of those in force that touched the unit.
    """

    inputs: bytes
    retractions: bytes = b""
    stamp_max_ms: int = 0


class Hours(msgspec.Struct, frozen=True, array_like=True):
    """The hours of a shard in force for a day: generation, page bits, and per hour what it was made of."""

    generation: Generation
    hours: dict[int, HourInputs]


class Manifest(msgspec.Struct, frozen=True, array_like=True):
    """The value of one (app, day) cell; ``seals``: state of each hour that is not open."""

    nonce: int = 0
    fence: int = 0
    entries: dict[tuple[int, int], Entry] = {}
    hours: dict[int, Hours] = {}
    seals: dict[int, int] = {}

    def entry(self, shard: int, hour: int) -> Entry:
        """The unit's entry; an empty one where there is none."""
        return self.entries.get((shard, hour), Entry())

    def counted(self, shard: int, hour: int) -> HourInputs | None:
        """The hours that stand for a unit, if they were made of its state in force; others count for nothing."""
        pack = self.hours.get(shard)
        made = pack.hours.get(hour) if pack else None
        return made if made is not None and made.inputs == fingerprint(self.entry(shard, hour).state) else None

    def seal(self, hour: int) -> int:
        """``OPEN``, ``SEALING``, ``SEALED`` or ``EXPIRED``: of the hour in all shards, also those without an entry."""
        return self.seals.get(hour, OPEN)


class DayInputs(msgspec.Struct, frozen=True, array_like=True):
    """What one day was made of: the fingerprint of its hours' inputs, that of their retractions, the newest stamp."""

    inputs: bytes
    retractions: bytes = b""
    stamp_max_ms: int = 0


class Days(msgspec.Struct, frozen=True, array_like=True):
    """The days of a shard in force for a month."""

    generation: Generation
    days: dict[int, DayInputs]


class Month(msgspec.Struct, frozen=True, array_like=True):
    """The value of one (app, month) cell."""

    nonce: int = 0
    days: dict[int, Days] = {}


def month_of(day: int) -> int:
    """The month, counted from 1970-01, in which a day (counted from 1970-01-01) lies."""
    return int(np.datetime64(day, "D").astype("datetime64[M]").astype(np.int64))


def first_day_of(month: int) -> int:
    """The first day of a month."""
    return int(np.datetime64(month, "M").astype("datetime64[D]").astype(np.int64))


def fingerprint(state: State) -> bytes:
    """Eight bytes for exactly these generations and this replay list (PROTOCOL 11); ``b""`` for an empty state."""
    if not state.generations and not state.replay:
        return b""
    numbers = [g.number for g in state.generations]
    batches = [r.batch for r in sorted(state.replay)]
    raw = struct.pack(f">II{len(numbers)}Q{len(batches)}Q", len(numbers), len(batches), *numbers, *batches)
    return hashlib.blake2b(raw, digest_size=8).digest()


def day_fingerprint(hours: Iterable[tuple[int, bytes]]) -> bytes:
    """The same for a shard's day: from (hour, fingerprint) of every hour with data; ``b""`` when there is none."""
    parts = sorted((hour, mark) for hour, mark in hours if mark)
    if not parts:
        return b""
    return hashlib.blake2b(b"".join(struct.pack(">I8s", s, m) for s, m in parts), digest_size=8).digest()


def hours_of(manifest: Manifest, shard: int) -> list[tuple[int, bytes]]:
    """(hour, fingerprint of its entry in force) of every hour of a shard that has any."""
    marks = ((s, fingerprint(e.state)) for (b, s), e in manifest.entries.items() if b == shard)
    return sorted((s, mark) for s, mark in marks if mark)


# dict keys of msgpack are texts and numbers: entries travel as a list of (shard, hour, entry)
class _ManifestCell(msgspec.Struct, array_like=True):
    nonce: int
    fence: int
    entries: list[tuple[int, int, Entry]]
    hours: dict[int, Hours]
    seals: dict[int, int] = {}


def encode(manifest: Manifest) -> bytes:
    """The cell's bytes."""
    entries = [(b, s, e) for (b, s), e in sorted(manifest.entries.items())]
    cell = _ManifestCell(manifest.nonce, manifest.fence, entries, manifest.hours, manifest.seals)
    return blocks.encode_record(blocks.MANIFEST, cell)


def decode(raw: bytes | None) -> Manifest:
    """The manifest; an empty one for an absent cell. Raises ``CorruptBlock``."""
    if raw is None:
        return Manifest()
    cell = blocks.decode_record(blocks.MANIFEST, raw, _ManifestCell)
    return Manifest(cell.nonce, cell.fence, {(b, s): e for b, s, e in cell.entries}, cell.hours, cell.seals)


def encode_month(month: Month) -> bytes:
    """The month cell's bytes."""
    return blocks.encode_record(blocks.MONTH, month)


def decode_month(raw: bytes | None) -> Month:
    """The month; an empty one for an absent cell. Raises ``CorruptBlock``."""
    return Month() if raw is None else blocks.decode_record(blocks.MONTH, raw, Month)
