"""Low-water marks: up to where everything an accepting process took in is settled, and what is known since (rule 26).

A process announces "up to this stamp I accepted n messages" (``announce``); the keeper moves its mark there once n
stamps are settled, and names stragglers of processes that are gone (``move``, ``adopt``). ``WatermarkVector`` is E: what was
known when a question was asked; it answers the same for ever. One row per app and process, each cell by check-and-put:
``a`` announcements, ``m`` the mark, ``o…`` and ``r…`` dead stamps and adoption records, which count once the mark names
them.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from spm import limits
from spm.arrays import BOOL, I64, U64
from spm.clock import random_bytes
from spm.errors import CorruptBlock, StoreUnavailable
from spm.store import keys
from spm.store.backends.base import Backend, Reader
from spm.store.encoding import blocks
from spm.store.encoding.blocks import Messages
from spm.store.encoding.codec import Column

_LOG = logging.getLogger(__name__)
Place = tuple[int, int]  # (ms, sequence) of a stamp: the order of one process' stamps
_ANNOUNCED, _MARK, _PAGE, _RECORD = b"a", b"m", b"o", b"r"
_TRIES = 8  # of a check-and-put that others keep winning
_NEWEST_KEPT = 8  # announcements that are never thinned out
_NONE = np.empty(0, np.uint64)


class Announcement(msgspec.Struct, frozen=True, array_like=True):
    """A process' word on one app: what it has accepted since it began, up to and with the stamp (ms, sequence).

    ``samples`` are those of its messages, without refused lines (``rejected``). ``open_…``: stamped, but neither queue
    nor store has confirmed them yet. ``ended``: no stamp will follow.
    """

    ms: int
    sequence: int
    messages: int
    samples: int
    rejected: int
    open_messages: int
    open_samples: int
    at_ms: int
    ended: bool = False

    @property
    def place(self) -> Place:
        """Up to where it speaks."""
        return self.ms, self.sequence


class OutcomeTotals(msgspec.Struct, frozen=True, array_like=True):
    """What became of some messages: samples by outcome, and messages by the best outcome of their samples."""

    messages: int = 0
    samples: int = 0  # as they were announced, or found
    stored: int = 0
    late: int = 0
    rejected: int = 0
    dead: int = 0
    stored_messages: int = 0
    late_messages: int = 0
    rejected_messages: int = 0
    dead_messages: int = 0

    def plus(self, other: "OutcomeTotals") -> "OutcomeTotals":
        """Both together."""
        mine, others = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        return OutcomeTotals(*(a + b for a, b in zip(mine, others, strict=True)))


class Watermark(msgspec.Struct, frozen=True, array_like=True):
    """A process' mark: every stamp up to it is settled; ``out`` and the stamps of ``pages`` are known at no E.

    It names the adoption records, too: one cell decides, so that no stamp is counted by the mark and by a record.
    ``totals``: of the stamps up to it that no record had named before.
    """

    process: int
    ms: int = 0
    sequence: int = 0
    at_ms: int = 0  # when the process said so
    totals: OutcomeTotals = OutcomeTotals()
    out: tuple[int, ...] = ()  # packed stamps, ascending
    pages: tuple[bytes, ...] = ()  # cells that hold more of them
    records: tuple[bytes, ...] = ()  # cells of the adoption records, in order

    @property
    def place(self) -> Place:
        """Up to where everything is settled."""
        return self.ms, self.sequence


@dataclass(frozen=True, slots=True)
class AdoptionRecord:
    """One adoption record: stamps above the mark of a process that is gone, packed, ascending, and their outcomes.

    ``stamps`` are stored, and known since; ``others`` are dead or were empty: counted, but known at no E.
    """

    stamps: U64
    others: U64
    totals: OutcomeTotals


@dataclass(frozen=True, slots=True)
class ProcessWatermarks:
    """One process' row of an app. ``words``: its announcements above the mark, and its newest in any case.

    ``damaged``: why a part of the row cannot be read, which is then as if it were not there. Nobody writes to it.
    """

    process: int
    words: tuple[Announcement, ...] = ()
    held: Watermark = field(default_factory=lambda: Watermark(0))
    adopted: tuple[AdoptionRecord, ...] = ()
    out: U64 = field(default_factory=lambda: _NONE)  # all dead stamps up to the mark, packed, ascending
    cell: bytes | None = None  # the mark's bytes, as the next check-and-put expects them
    damaged: str = ""

    @property
    def named(self) -> U64:
        """All stamps that adoption records name, packed."""
        return np.concatenate([_NONE, *(part for record in self.adopted for part in (record.stamps, record.others))])

    @property
    def messages(self) -> int:
        """How many stamps there are up to the mark."""
        return self.held.totals.messages + int((self.named <= np.uint64(packed(self.held.place))).sum())

    @property
    def announced(self) -> Announcement | None:
        """The newest announcement; ``None`` when there is none."""
        return self.words[-1] if self.words else None

    @property
    def settled(self) -> bool:
        """Whether all that was announced is held."""
        return self.announced is None or self.announced.place <= self.held.place

    def waiting(self) -> tuple[Announcement, ...]:
        """Announcements above the mark, oldest first."""
        return tuple(word for word in self.words if word.place > self.held.place)

    @property
    def finished(self) -> bool:
        """Whether nothing of it can come any more: it has ended, and everything is held."""
        return self.announced is not None and self.announced.ended and self.settled

    def gone(self, now_ms: int) -> bool:
        """Whether the process has ended, or seems to have: it has said nothing for long."""
        word = self.announced
        return word is None or word.ended or now_ms - word.at_ms > limits.PROCESS_SILENT_S * 1000


def pack(ms: I64, sequence: I64) -> U64:
    """Stamps of one process as numbers that sort as they do."""
    packed: U64 = (ms.astype(np.uint64) << np.uint64(16)) | sequence.astype(np.uint64)
    return packed


def packed(place: Place) -> int:
    """The same of one stamp."""
    return place[0] << 16 | place[1]


# --- announcing -------------------------------------------------------------------------------------------------------


def announce(store: Backend, app: int, process: int, word: Announcement) -> bool:
    """Write a process' word; whether all it says is held already. A word that is not newer changes nothing.

    The newest word says all that the ones before it said, so it takes the place of words that cannot be read. Raises
    ``StoreUnavailable`` when it is not sure: announce again, with the newest numbers.
    """
    key = keys.mark(app, process)
    for _ in range(_TRIES):
        [row] = store.get("marks", [key], [_ANNOUNCED, _MARK])
        was = row.get(_ANNOUNCED) if row else None
        words, held = _before(row or {})
        if words and (words[-1].place, words[-1].ended) > (word.place, word.ended):
            return word.place <= held
        cell = blocks.encode_record(blocks.ANNOUNCED, (process, _kept(words, word, held)))
        if cell == was or store.check_and_put("marks", key, _ANNOUNCED, was, cell):
            return word.place <= held
    raise StoreUnavailable(f"the announcements of process {process} for app {app} kept changing")


def _before(row: Mapping[bytes, bytes]) -> tuple[Sequence[Announcement], Place]:
    """(a process' words so far, up to where its mark is), as far as they can be read."""
    words: Sequence[Announcement] = ()
    held = (-1, 0)
    with suppress(CorruptBlock):
        words = _words(row[_ANNOUNCED])[1] if _ANNOUNCED in row else ()
    with suppress(CorruptBlock):
        held = _mark(row[_MARK]).place if _MARK in row else held
    return words, held


def _kept(words: Sequence[Announcement], word: Announcement, held: Place) -> list[Announcement]:
    """The words worth keeping: those above the mark and the new one; every second of the older ones if too many.

    The oldest always stays, so that under any load there is one that is settled some day.
    """
    above = [w for w in words if held < w.place < word.place] + [word]
    while len(above) > limits.MARK_WORDS_MAX:
        above = above[:-_NEWEST_KEPT:2] + above[-_NEWEST_KEPT:]
    return above


# --- reading ----------------------------------------------------------------------------------------------------------


def read(reader: Reader, app: int) -> dict[int, ProcessWatermarks]:
    """Every process that ever accepted a message of the app; one whose row is damaged holds up no other."""
    [span] = keys.app_ranges("marks", app)
    rows = reader.scan("marks", *span)  # one may hold nothing but stamps that no mark names yet
    return {
        process: _process(process, cells)
        for process, cells in ((keys.parse_mark(key), cells) for key, cells in rows)
        if _ANNOUNCED in cells or _MARK in cells
    }


def _process(process: int, cells: Mapping[bytes, bytes]) -> ProcessWatermarks:
    """Its mark, or none if anything is wrong with that or with what it names; and its words."""
    troubles = []
    found = ProcessWatermarks(process, held=Watermark(process))
    try:
        found = _held(process, cells)
    except CorruptBlock as error:
        troubles.append(str(error))
    try:
        found = replace(found, words=_words(cells[_ANNOUNCED])[1] if _ANNOUNCED in cells else ())
    except CorruptBlock as error:
        troubles.append(str(error))
    if troubles:
        _LOG.error("the marks of process %d are damaged: %s", process, "; ".join(troubles))
    return replace(found, damaged="; ".join(troubles))


def _held(process: int, cells: Mapping[bytes, bytes]) -> ProcessWatermarks:
    held = _mark(cells[_MARK]) if _MARK in cells else Watermark(process)
    missing = [name.hex() for name in (*held.pages, *held.records) if name not in cells]
    if missing:
        raise CorruptBlock("a mark names cells that are not there", got=missing[:9])
    out = [np.array(held.out, np.uint64), *(_record(cells[name]).stamps for name in held.pages)]
    records = tuple(_record(cells[name]) for name in held.records)
    return ProcessWatermarks(process, (), held, records, np.sort(np.concatenate(out)), cells.get(_MARK))


def _words(raw: bytes) -> tuple[int, tuple[Announcement, ...]]:
    return blocks.decode_record(blocks.ANNOUNCED, raw, tuple[int, tuple[Announcement, ...]])


def _mark(raw: bytes) -> Watermark:
    return blocks.decode_record(blocks.MARK, raw, Watermark)


def _record(raw: bytes) -> AdoptionRecord:
    c, _ = blocks.decode_named(blocks.STAMPS, raw, ("ms", "sequence", "counts", "range"))
    if len(c["ms"]) != len(c["sequence"]):
        raise CorruptBlock("a record of stamps has columns of different lengths")
    stamps, known = pack(c["ms"], c["sequence"]), int(c["range"][0])
    return AdoptionRecord(stamps[:known], stamps[known:], OutcomeTotals(*map(int, c["counts"])))


def _record_cell(record: AdoptionRecord) -> bytes:
    stamps = np.concatenate([record.stamps, record.others])
    columns: dict[str, Column] = {
        "ms": (stamps >> np.uint64(16)).astype(np.int64),
        "sequence": (stamps & np.uint64(0xFFFF)).astype(np.uint16),
        "counts": np.array(msgspec.structs.astuple(record.totals), np.int64),
        "range": np.array([len(record.stamps)], np.int64),
    }
    return blocks.encode_columns(blocks.STAMPS, columns)


# --- keeping ----------------------------------------------------------------------------------------------------------


def move(
    store: Backend, app: int, was: ProcessWatermarks, word: Announcement, *, totals: OutcomeTotals, out: U64
) -> bool:
    """Move a mark to an announcement and name, in the same cell, the dead stamps it passes; whether it went in.

    ``totals`` and ``out`` are of the stamps between the mark that was read and the announcement. Dead stamps too many
    for the cell go into pages first, which nobody reads before a mark names them.
    """
    assert word.place > was.held.place, "BUG: a mark goes forward only"
    named, pages = np.concatenate([np.array(was.held.out, np.uint64), out]), list(was.held.pages)
    while len(named) > limits.MARK_OUT_INLINE:
        pages.append(
            _page(store, app, was, _PAGE, AdoptionRecord(named[: limits.STAMPS_PER_CELL], _NONE, OutcomeTotals()))
        )
        named = named[limits.STAMPS_PER_CELL :]
    inline = tuple(np.sort(named).tolist())
    together = was.held.totals.plus(totals)
    return _put(
        store,
        app,
        was,
        Watermark(was.process, *word.place, word.at_ms, together, inline, tuple(pages), was.held.records),
    )


def adopt(store: Backend, app: int, was: ProcessWatermarks, record: AdoptionRecord) -> bool:
    """Append a record of stamps above the mark; whether it went in."""
    size = len(record.stamps) + len(record.others)
    assert size <= limits.STAMPS_PER_CELL, "BUG: an adoption record is too large"
    name = _page(store, app, was, _RECORD, record)
    return _put(store, app, was, msgspec.structs.replace(was.held, records=(*was.held.records, name)))


def _page(store: Backend, app: int, was: ProcessWatermarks, kind: bytes, record: AdoptionRecord) -> bytes:
    """Write stamps into a cell that no mark names yet; its name, which nobody had before."""
    name = kind + random_bytes(8)
    store.check_and_put("marks", keys.mark(app, was.process), name, None, _record_cell(record))
    return name


def _put(store: Backend, app: int, was: ProcessWatermarks, mark: Watermark) -> bool:
    cell = blocks.encode_record(blocks.MARK, mark)
    return store.check_and_put("marks", keys.mark(app, was.process), _MARK, was.cell, cell)


def lag_ms(marks: Mapping[int, ProcessWatermarks], now_ms: int) -> int:
    """How far the marks of living processes are behind: the age of the oldest announcement that is not held."""
    alive = [m for m in marks.values() if not m.gone(now_ms)]
    return max((now_ms - m.waiting()[0].at_ms for m in alive if not m.settled), default=0)


# --- what is known ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a vector holds of one process; the stamps are those of its marks, as far as the vector has seen them."""

    mark: int
    records: int
    out: U64
    adopted: U64


@dataclass(frozen=True, slots=True)
class WatermarkVector:
    """E: of each process the mark held and how many adoption records there were. Later marks do not change it."""

    seen: Mapping[int, _Seen]

    @classmethod
    def of(cls, marks: Mapping[int, ProcessWatermarks]) -> "WatermarkVector":
        """What is known by these marks."""
        return cls({p: _seen(m, packed(m.held.place), len(m.adopted)) for p, m in marks.items()})

    def to_bytes(self) -> bytes:
        """What is kept with a verdict: numbers only; the stamps stay with the marks, which only grow."""
        numbers = np.array(sorted(self.seen), np.int64)
        marks = np.array([self.seen[p].mark for p in numbers.tolist()], np.uint64)
        columns: dict[str, Column] = {
            "process": numbers.astype(np.uint32),
            "ms": (marks >> np.uint64(16)).astype(np.int64),
            "sequence": (marks & np.uint64(0xFFFF)).astype(np.uint16),
            "counts": np.array([self.seen[p].records for p in numbers.tolist()], np.int64),
        }
        return blocks.encode_columns(blocks.VECTOR, columns)

    @classmethod
    def from_bytes(cls, raw: bytes, marks: Mapping[int, ProcessWatermarks]) -> "WatermarkVector":
        """The vector again, with the app's marks of today; ``CorruptBlock`` when they lack what it has seen."""
        c, _ = blocks.decode_named(blocks.VECTOR, raw, ("process", "ms", "sequence", "counts"))
        places = pack(c["ms"], c["sequence"]).tolist()
        rows = list(zip(c["process"].tolist(), places, c["counts"].tolist(), strict=True))
        lost = [
            p
            for p, mark, n in rows
            if p not in marks or mark > packed(marks[p].held.place) or n > len(marks[p].adopted)
        ]
        if lost:
            raise CorruptBlock("the marks that a vector has seen are not there", got=f"processes {lost[:9]}")
        return cls({p: _seen(marks[p], mark, n) for p, mark, n in rows})

    def known(self, messages: Messages) -> BOOL:
        """bool[M]: which messages' stamps are known."""
        found = np.zeros(len(messages), np.bool_)
        stamps = pack(messages.ms, messages.sequence)
        for process in np.unique(messages.process).tolist():
            seen = self.seen.get(process)
            if seen is None:
                continue
            mine = np.flatnonzero(messages.process == process)
            here = stamps[mine]
            below = (here <= np.uint64(seen.mark)) & ~_among(here, seen.out)
            found[mine] = below | _among(here, seen.adopted)
        return found


def _seen(marks: ProcessWatermarks, mark: int, records: int) -> _Seen:
    out = marks.out[marks.out <= np.uint64(mark)]
    stamps = [record.stamps for record in marks.adopted[:records]]
    return _Seen(mark, records, out, np.sort(np.concatenate(stamps)) if stamps else _NONE)


def _among(stamps: U64, wanted: U64) -> BOOL:
    found: BOOL = np.isin(stamps, wanted)
    return found
