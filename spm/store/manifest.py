"""The manifest: one cell per (app, day) that says which rows are in force. Pure values; this module reads no store.

A cell is changed only by check-and-put of the whole value, and its nonce never repeats (PROTOCOL 4). It names
everything that readers must find: generations, the replay list, rollup rows and their inputs (PROTOCOL 10, 11, 14, 16,
18). ``Month`` does this for rows of `days`.
"""

import hashlib
import struct
from collections.abc import Collection, Iterable

import msgspec
import numpy as np

from spm.errors import CorruptBlock
from spm.store.encoding import blocks, name_sets

ENTRIES_NAMES_MAX = 20_000  # sources that a day's entries name one by one: half a megabyte, 2 ms to decode
SOURCES_BYTES_MAX = 4_000_000  # of sources' names in a day's manifest: half a cell; beyond it none are named
# states of an hour (PROTOCOL 23): its samples are deleted when it is sealed, its rows of `hours` when it is expired
OPEN, SEALING, SEALED, EXPIRED = range(4)


class Generation(msgspec.Struct, frozen=True, array_like=True):
    """Merged rows of a HourShard. Pages: by the top bits of a series id, and by timeline number >> shift."""

    number: int  # run:40 ‖ attempt:24, unique for ever, without order
    page_bits: int = 0
    timeline_shift: int = 31
    form: int = 1  # of its rows; newer forms add cells or columns, and a run may rewrite older ones

    def page_of(self, series: int) -> int:
        """The chunk page that holds ``series``."""
        return series >> (64 - self.page_bits) if self.page_bits else 0


class State(msgspec.Struct, frozen=True, array_like=True):
    """What is in force for a HourShard: its generations, oldest first, and the replay list."""

    generations: tuple[Generation, ...] = ()
    replay: tuple["Replay", ...] = ()


class Replay(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A batch of the replay list, which is read from its block although its pending cell is deleted."""

    ingest_ms: int
    batch: int


class PreviousState(msgspec.Struct, frozen=True, array_like=True):
    """The full state that a run replaced; ``together``: (shard, hour)s that can only be rolled back together."""

    run: int
    state: State
    together: tuple[tuple[int, int], ...] = ()


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """The manifest's part about one HourShard."""

    state: State = State()
    history: tuple[PreviousState, ...] = ()
    stamp_min_ms: int = 0
    stamp_max_ms: int = 0
    sources: tuple[str, ...] = ()  # sorted; none where there is data: they are not known, it may be of any source


class HourInputs(msgspec.Struct, frozen=True, array_like=True):
    """The inputs of one hour's rollup rows: the entry's fingerprint, the retractions left out, the newest stamp.

    ``retractions`` are the numbers (``retractions.ids``) of those in force that touched the HourShard.
    """

    inputs: bytes
    retractions: bytes = b""
    stamp_max_ms: int = 0


class HourPack(msgspec.Struct, frozen=True, array_like=True):
    """The rows of `hours` in force for a shard's day: their generation, and per hour its inputs."""

    generation: Generation
    hours: dict[int, HourInputs]


class Manifest(msgspec.Struct, frozen=True, array_like=True):
    """The value of one (app, day) cell; ``seals``: state of each hour that is not open."""

    nonce: int = 0
    fence: int = 0
    entries: dict[tuple[int, int], Entry] = {}
    hours: dict[int, HourPack] = {}
    seals: dict[int, int] = {}

    def entry(self, shard: int, hour: int) -> Entry:
        """The entry of a HourShard; an empty one where there is none."""
        return self.entries.get((shard, hour), Entry())

    def valid_inputs(self, shard: int, hour: int) -> HourInputs | None:
        """The inputs of a HourShard's rollup rows, if these were computed from its state in force; else ``None``."""
        pack = self.hours.get(shard)
        inputs = pack.hours.get(hour) if pack else None
        return inputs if inputs is not None and inputs.inputs == fingerprint(self.entry(shard, hour).state) else None

    def seal(self, hour: int) -> int:
        """The state of an hour in all shards, also in those without an entry: ``OPEN``, ``SEALING``, …"""
        return self.seals.get(hour, OPEN)


class DayInputs(msgspec.Struct, frozen=True, array_like=True):
    """The inputs of one day's rollup rows: fingerprints of its hours' inputs and retractions, the newest stamp."""

    inputs: bytes
    retractions: bytes = b""
    stamp_max_ms: int = 0


class DayPack(msgspec.Struct, frozen=True, array_like=True):
    """The rows of `days` in force for a shard's month: their generation, and per day its inputs."""

    generation: Generation
    days: dict[int, DayInputs]


class Month(msgspec.Struct, frozen=True, array_like=True):
    """The value of one (app, month) cell."""

    nonce: int = 0
    days: dict[int, DayPack] = {}


def month_of(day: int) -> int:
    """The month, counted from 1970-01, in which a day (counted from 1970-01-01) lies."""
    return int(np.datetime64(day, "D").astype("datetime64[M]").astype(np.int64))


def first_day_of(month: int) -> int:
    """The first day (counted from 1970-01-01) of a month."""
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
    """The fingerprint of a shard's day from (hour, fingerprint) of every hour with data; ``b""`` without any."""
    parts = sorted((hour, digest) for hour, digest in hours if digest)
    if not parts:
        return b""
    return hashlib.blake2b(b"".join(struct.pack(">I8s", s, m) for s, m in parts), digest_size=8).digest()


def hours_of(manifest: Manifest, shard: int) -> list[tuple[int, bytes]]:
    """(hour, fingerprint of its entry in force) of every hour of a shard that has any."""
    fingerprints = ((s, fingerprint(e.state)) for (b, s), e in manifest.entries.items() if b == shard)
    return sorted((s, digest) for s, digest in fingerprints if digest)


def named_sources(sources: Collection[str]) -> tuple[str, ...]:
    """The sources of one HourShard as its entry names them; ``()`` if they are too many to be named."""
    size = sum(len(name.encode()) for name in sources)
    return tuple(sorted(sources)) if size <= SOURCES_BYTES_MAX else ()


def joined_sources(parts: Iterable[tuple[int, Collection[str]]]) -> tuple[str, ...]:
    """The sources of parts with (newest stamp, sources); ``()`` if those of a part with data are not known."""
    known = [sources for stamp_max_ms, sources in parts if stamp_max_ms]
    return named_sources(set().union(*known)) if all(known) else ()


# --- the cell ---------------------------------------------------------------------------------------------------------

# msgpack's dict keys are texts and numbers, so entries are stored as a list of (shard, hour, entry)
_NAMING, _NUMBERING = 1, 2  # versions: entries with names of their own, and with numbers of shared sets of names


class _ManifestCell(msgspec.Struct, array_like=True):
    nonce: int
    fence: int
    entries: list[tuple[int, int, Entry]]
    hours: dict[int, HourPack]
    seals: dict[int, int] = {}


class _NumberedEntry(msgspec.Struct, array_like=True):
    state: State
    history: tuple[PreviousState, ...]
    stamp_min_ms: int
    stamp_max_ms: int
    sources: int


class _NumberedCell(msgspec.Struct, array_like=True):
    nonce: int
    fence: int
    entries: list[tuple[int, int, _NumberedEntry]]
    hours: dict[int, HourPack]
    seals: dict[int, int]
    names: list[str]
    sets: list[bytes]


def encode(manifest: Manifest) -> bytes:
    """Encode the cell; raise ``LimitExceeded`` if no reader could decode it.

    Many sources are named once for the whole day; entries beyond ``SOURCES_BYTES_MAX`` name none.
    """
    names = sum(len(entry.sources) for entry in manifest.entries.values())
    return _encode_naming(manifest) if names <= ENTRIES_NAMES_MAX else _encode_numbering(manifest)


def _encode_naming(manifest: Manifest) -> bytes:
    entries = [(b, s, e) for (b, s), e in sorted(manifest.entries.items())]
    cell = _ManifestCell(manifest.nonce, manifest.fence, entries, manifest.hours, manifest.seals)
    return blocks.encode_record(blocks.MANIFEST, cell, _NAMING)


def _encode_numbering(manifest: Manifest) -> bytes:
    places = sorted(manifest.entries.items(), key=lambda item: (item[0][1], item[0][0]))  # older hours keep their names
    names, sets, numbers = name_sets.pack([e.sources for _, e in places], SOURCES_BYTES_MAX)
    entries = [
        (b, s, _NumberedEntry(e.state, e.history, e.stamp_min_ms, e.stamp_max_ms, number))
        for ((b, s), e), number in zip(places, numbers, strict=True)
    ]
    cell = _NumberedCell(manifest.nonce, manifest.fence, entries, manifest.hours, manifest.seals, names, sets)
    return blocks.encode_record(blocks.MANIFEST, cell, _NUMBERING)


def decode(raw: bytes | None) -> Manifest:
    """Decode a cell, an absent one to an empty manifest; raise ``CorruptBlock``."""
    if raw is None:
        return Manifest()
    version, packed = blocks.read(blocks.MANIFEST, raw)
    if version == _NAMING:
        naming = blocks.as_record(packed, _ManifestCell)
        entries = {(b, s): e for b, s, e in naming.entries}
        return Manifest(naming.nonce, naming.fence, entries, naming.hours, naming.seals)
    cell = blocks.as_record(packed, _NumberedCell)
    sets = name_sets.unpack(cell.names, cell.sets)
    if any(not 0 <= entry.sources < len(sets) for _, _, entry in cell.entries):
        raise CorruptBlock("a manifest's entry has a set of sources that is not listed", wanted=f"below {len(sets)}")
    numbered = {
        (b, s): Entry(e.state, e.history, e.stamp_min_ms, e.stamp_max_ms, sets[e.sources]) for b, s, e in cell.entries
    }
    return Manifest(cell.nonce, cell.fence, numbered, cell.hours, cell.seals)


def encode_month(month: Month) -> bytes:
    """Encode a month's cell."""
    return blocks.encode_record(blocks.MONTH, month)


def decode_month(raw: bytes | None) -> Month:
    """Decode a month's cell, an absent one to an empty month; raise ``CorruptBlock``."""
    return Month() if raw is None else blocks.decode_record(blocks.MONTH, raw, Month)
