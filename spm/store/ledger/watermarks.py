"""Watermarks: the stamp up to which everything that an accepting process took in is settled (PROTOCOL 26).

A process announces "up to this stamp I accepted n messages" (``announce``). The keeper moves its watermark there when n
stamps are settled, and names late stamps of processes that are gone (``move``, ``adopt``). ``WatermarkVector`` is E,
the stamps that are known at one moment; what it says of a stamp never changes. One row per app and process, each cell
by check-and-put: ``a`` the announcements, ``m`` the watermark, ``o…`` and ``r…`` dead stamps and adoption records that
count when the watermark names them.
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
from spm.errors import CorruptBlock
from spm.store import keys
from spm.store.backends.base import Backend, Reader
from spm.store.check_and_put import replace_cell
from spm.store.encoding import blocks
from spm.store.encoding.blocks import Messages
from spm.store.encoding.codec import Column

_LOG = logging.getLogger(__name__)
Place = tuple[int, int]  # (ms, sequence) of a stamp: the order of one process' stamps
_ANNOUNCED, _MARK, _PAGE, _RECORD = b"a", b"m", b"o", b"r"

_NEWEST_COUNT = 8  # announcements that are never thinned out
_NONE = np.empty(0, np.uint64)


class Announcement(msgspec.Struct, frozen=True, array_like=True):
    """What a process has accepted of one app since it began, up to and including the stamp (ms, sequence).

    ``samples`` counts those of its messages, without refused lines (``rejected``). ``open_…``: stamped, but not yet
    confirmed by queue or store. ``ended``: no stamp will follow.
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
        """The last stamp that it includes."""
        return self.ms, self.sequence


class OutcomeTotals(msgspec.Struct, frozen=True, array_like=True):
    """Sums over some messages: samples by outcome, and messages by the best outcome of their samples."""

    messages: int = 0
    samples: int = 0  # as announced, or as counted from rows
    stored: int = 0
    late: int = 0
    rejected: int = 0
    dead: int = 0
    stored_messages: int = 0
    late_messages: int = 0
    rejected_messages: int = 0
    dead_messages: int = 0

    def plus(self, other: "OutcomeTotals") -> "OutcomeTotals":
        """The sums of both."""
        mine, others = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        return OutcomeTotals(*(a + b for a, b in zip(mine, others, strict=True)))


class Watermark(msgspec.Struct, frozen=True, array_like=True):
    """A process' watermark: every stamp up to it is settled; ``dead_stamps`` and those of ``pages`` are known at no E.

    It also names the adoption records: one cell decides, so that no stamp is counted by watermark and record both.
    ``totals`` are those of the stamps up to it that no record had named before.
    """

    process: int
    ms: int = 0
    sequence: int = 0
    at_ms: int = 0  # when the process announced it
    totals: OutcomeTotals = OutcomeTotals()
    dead_stamps: tuple[int, ...] = ()  # packed stamps, ascending
    pages: tuple[bytes, ...] = ()  # cells that hold more dead stamps
    records: tuple[bytes, ...] = ()  # cells of the adoption records, in order

    @property
    def place(self) -> Place:
        """The stamp up to which everything is settled."""
        return self.ms, self.sequence


@dataclass(frozen=True, slots=True)
class AdoptionRecord:
    """Stamps above the watermark of a process that is gone, packed and ascending, with their outcomes.

    ``stamps`` are stored and known from now on; ``others`` are dead or had no samples: counted, but known at no E.
    """

    stamps: U64
    others: U64
    totals: OutcomeTotals


@dataclass(frozen=True, slots=True)
class ProcessWatermarks:
    """One process' row of an app. ``announcements``: those above the watermark, and in any case the newest.

    ``damaged``: why a part of the row cannot be read; that part counts as absent. Such a row is not written to.
    """

    process: int
    announcements: tuple[Announcement, ...] = ()
    watermark: Watermark = field(default_factory=lambda: Watermark(0))
    adoptions: tuple[AdoptionRecord, ...] = ()
    dead_stamps: U64 = field(default_factory=lambda: _NONE)  # all dead stamps up to the watermark, packed, ascending
    cell: bytes | None = None  # the watermark's bytes, as the next check-and-put expects them
    damaged: str = ""

    @property
    def adopted_stamps(self) -> U64:
        """All stamps that adoption records name, packed."""
        return np.concatenate([_NONE, *(part for record in self.adoptions for part in (record.stamps, record.others))])

    @property
    def messages(self) -> int:
        """The number of stamps up to the watermark."""
        return self.watermark.totals.messages + int(
            (self.adopted_stamps <= np.uint64(pack_place(self.watermark.place))).sum()
        )

    @property
    def newest(self) -> Announcement | None:
        """The newest announcement; ``None`` when there is none."""
        return self.announcements[-1] if self.announcements else None

    @property
    def settled(self) -> bool:
        """Whether the watermark has reached the newest announcement."""
        return self.newest is None or self.newest.place <= self.watermark.place

    def open_announcements(self) -> tuple[Announcement, ...]:
        """Announcements above the watermark, oldest first."""
        return tuple(announcement for announcement in self.announcements if announcement.place > self.watermark.place)

    @property
    def finished(self) -> bool:
        """Whether nothing of it can come any more: it has ended, and everything it announced is settled."""
        return self.newest is not None and self.newest.ended and self.settled

    def gone(self, now_ms: int) -> bool:
        """Whether the process has ended or seems to have ended, because it has announced nothing for long."""
        newest = self.newest
        return newest is None or newest.ended or now_ms - newest.at_ms > limits.PROCESS_GONE_S * 1000


def pack(ms: I64, sequence: I64) -> U64:
    """Pack stamps of one process into numbers of the same order."""
    stamps: U64 = (ms.astype(np.uint64) << np.uint64(16)) | sequence.astype(np.uint64)
    return stamps


def pack_place(place: Place) -> int:
    """Pack one stamp as ``pack`` does."""
    return place[0] << 16 | place[1]


# --- announcing -------------------------------------------------------------------------------------------------------


def announce(store: Backend, app: int, process: int, announcement: Announcement) -> bool:
    """Write an announcement; return whether all it includes is settled. One that is not newer changes nothing.

    An announcement includes all earlier ones, so it also replaces announcements that cannot be read. Raises
    ``StoreUnavailable`` when the outcome is unknown: announce again, with the newest numbers.
    """

    def with_announcement(row: Mapping[bytes, bytes]) -> tuple[bytes | None, bool]:
        present, place = _present_state(row)
        is_settled = announcement.place <= place
        if present and (present[-1].place, present[-1].ended) > (announcement.place, announcement.ended):
            return None, is_settled
        return blocks.encode_record(blocks.ANNOUNCED, (process, _thinned_out(present, announcement, place))), is_settled

    error = f"the announcements of process {process} for app {app} kept changing"
    key = keys.watermark(app, process)
    return replace_cell(store, "marks", key, with_announcement, error=error, column=_ANNOUNCED, read_too=[_MARK])


def _present_state(row: Mapping[bytes, bytes]) -> tuple[Sequence[Announcement], Place]:
    """(a process' announcements, the place of its watermark), as far as they can be read."""
    announcements: Sequence[Announcement] = ()
    place = (-1, 0)
    with suppress(CorruptBlock):
        announcements = _decode_announcements(row[_ANNOUNCED])[1] if _ANNOUNCED in row else ()
    with suppress(CorruptBlock):
        place = _decode_watermark(row[_MARK]).place if _MARK in row else place
    return announcements, place


def _thinned_out(announcements: Sequence[Announcement], newest: Announcement, place: Place) -> list[Announcement]:
    """The announcements above the watermark and the newest; of too many only every second of the older ones.

    The oldest always stays, so that under any load one of them is settled some day.
    """
    above = [a for a in announcements if place < a.place < newest.place] + [newest]
    while len(above) > limits.ANNOUNCEMENTS_MAX:
        above = above[:-_NEWEST_COUNT:2] + above[-_NEWEST_COUNT:]
    return above


# --- reading ----------------------------------------------------------------------------------------------------------


def read(reader: Reader, app: int) -> dict[int, ProcessWatermarks]:
    """Read the row of every process that ever accepted a message of the app; a damaged row does not affect others."""
    [span] = keys.app_ranges("marks", app)
    rows = reader.scan("marks", *span)  # a row may hold only stamps that no watermark names yet
    return {
        process: _read_process(process, cells)
        for process, cells in ((keys.parse_watermark(key), cells) for key, cells in rows)
        if _ANNOUNCED in cells or _MARK in cells
    }


def newest_stamp_ms(reader: Reader, app: int) -> int:
    """The time of the newest stamp that any process announced for the app; 0 if none did."""
    return max((row.newest.ms for row in read(reader, app).values() if row.newest is not None), default=0)


def _read_process(process: int, cells: Mapping[bytes, bytes]) -> ProcessWatermarks:
    """Decode a row: the watermark, or none if it or a cell that it names is damaged, and the announcements."""
    troubles = []
    result = ProcessWatermarks(process, watermark=Watermark(process))
    try:
        result = _read_watermark(process, cells)
    except CorruptBlock as error:
        troubles.append(str(error))
    try:
        if _ANNOUNCED in cells:
            result = replace(result, announcements=_decode_announcements(cells[_ANNOUNCED])[1])
    except CorruptBlock as error:
        troubles.append(str(error))
    if troubles:
        _LOG.error("the watermark row of process %d is damaged: %s", process, "; ".join(troubles))
    return replace(result, damaged="; ".join(troubles))


def _read_watermark(process: int, cells: Mapping[bytes, bytes]) -> ProcessWatermarks:
    watermark = _decode_watermark(cells[_MARK]) if _MARK in cells else Watermark(process)
    missing = [name.hex() for name in (*watermark.pages, *watermark.records) if name not in cells]
    if missing:
        raise CorruptBlock("a watermark names cells that are not there", got=missing[:9])
    pages = [_decode_adoption(cells[name]).stamps for name in watermark.pages]
    dead_stamps = np.sort(np.concatenate([np.array(watermark.dead_stamps, np.uint64), *pages]))
    records = tuple(_decode_adoption(cells[name]) for name in watermark.records)
    return ProcessWatermarks(process, (), watermark, records, dead_stamps, cells.get(_MARK))


def _decode_announcements(raw: bytes) -> tuple[int, tuple[Announcement, ...]]:
    return blocks.decode_record(blocks.ANNOUNCED, raw, tuple[int, tuple[Announcement, ...]])


def _decode_watermark(raw: bytes) -> Watermark:
    return blocks.decode_record(blocks.WATERMARK, raw, Watermark)


def _decode_adoption(raw: bytes) -> AdoptionRecord:
    c, _ = blocks.decode_named(blocks.STAMPS, raw, ("ms", "sequence", "counts", "range"))
    if len(c["ms"]) != len(c["sequence"]):
        raise CorruptBlock("a record of stamps has columns of different lengths")
    stamps, known = pack(c["ms"], c["sequence"]), int(c["range"][0])
    return AdoptionRecord(stamps[:known], stamps[known:], OutcomeTotals(*map(int, c["counts"])))


def _encode_adoption(record: AdoptionRecord) -> bytes:
    stamps = np.concatenate([record.stamps, record.others])
    columns: dict[str, Column] = {
        "ms": (stamps >> np.uint64(16)).astype(np.int64),
        "sequence": (stamps & np.uint64(0xFFFF)).astype(np.uint16),
        "counts": np.array(msgspec.structs.astuple(record.totals), np.int64),
        "range": np.array([len(record.stamps)], np.int64),
    }
    return blocks.encode_columns(blocks.STAMPS, columns)


# --- the keeper's writes ----------------------------------------------------------------------------------------------


def move(
    store: Backend,
    app: int,
    process: ProcessWatermarks,
    announcement: Announcement,
    *,
    totals: OutcomeTotals,
    dead_stamps: U64,
) -> bool:
    """Move a watermark to an announcement and name, in the same cell, the dead stamps it passes; whether it was put.

    ``totals`` and ``dead_stamps`` are of the stamps between the present watermark and the announcement. Dead stamps
    that do not fit the cell are first written to pages, which nobody reads before a watermark names them.
    """
    present = process.watermark
    assert announcement.place > present.place, "BUG: a watermark goes forward only"
    named, pages = np.concatenate([np.array(present.dead_stamps, np.uint64), dead_stamps]), list(present.pages)
    while len(named) > limits.WATERMARK_DEAD_STAMPS_MAX:
        page = AdoptionRecord(named[: limits.STAMPS_PER_CELL], _NONE, OutcomeTotals())
        pages.append(_put_stamps(store, app, process, _PAGE, page))
        named = named[limits.STAMPS_PER_CELL :]
    watermark = Watermark(
        process.process,
        *announcement.place,
        announcement.at_ms,
        present.totals.plus(totals),
        tuple(np.sort(named).tolist()),
        tuple(pages),
        present.records,
    )
    return _put_watermark(store, app, process, watermark)


def adopt(store: Backend, app: int, process: ProcessWatermarks, record: AdoptionRecord) -> bool:
    """Append a record of stamps above the watermark; whether it was put."""
    size = len(record.stamps) + len(record.others)
    assert size <= limits.STAMPS_PER_CELL, "BUG: an adoption record is too large"
    name = _put_stamps(store, app, process, _RECORD, record)
    watermark = msgspec.structs.replace(process.watermark, records=(*process.watermark.records, name))
    return _put_watermark(store, app, process, watermark)


def _put_stamps(store: Backend, app: int, process: ProcessWatermarks, kind: bytes, record: AdoptionRecord) -> bytes:
    """Write stamps into a new cell, which no watermark names yet, and return its name."""
    name = kind + random_bytes(8)
    store.check_and_put("marks", keys.watermark(app, process.process), name, None, _encode_adoption(record))
    return name


def _put_watermark(store: Backend, app: int, process: ProcessWatermarks, watermark: Watermark) -> bool:
    cell = blocks.encode_record(blocks.WATERMARK, watermark)
    return store.check_and_put("marks", keys.watermark(app, process.process), _MARK, process.cell, cell)


def lag_ms(watermarks: Mapping[int, ProcessWatermarks], now_ms: int) -> int:
    """The age of the oldest announcement of a living process that its watermark has not reached."""
    alive = [process for process in watermarks.values() if not process.gone(now_ms)]
    return max((now_ms - p.open_announcements()[0].at_ms for p in alive if not p.settled), default=0)


# --- what is known ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ProcessView:
    """A vector's part about one process; the stamps are those of its row, as far as the vector includes them."""

    watermark: int
    record_count: int
    dead_stamps: U64
    adopted_stamps: U64
    is_complete: bool = False  # the process has ended, and no stamp of it lies above the watermark


@dataclass(frozen=True, slots=True)
class WatermarkVector:
    """E: each process' watermark and number of adoption records at one moment, which later rows do not change."""

    views: Mapping[int, _ProcessView]

    @classmethod
    def of(cls, watermarks: Mapping[int, ProcessWatermarks]) -> "WatermarkVector":
        """The vector of the present rows."""
        return cls({p: _view_of(m, pack_place(m.watermark.place), len(m.adoptions)) for p, m in watermarks.items()})

    @property
    def complete_to_ms(self) -> int:
        """The least watermark of the processes of which stamps may still come."""
        places = [view.watermark >> 16 for view in self.views.values() if not view.is_complete]
        return min(places, default=limits.TIME_MAX_MS)

    def to_bytes(self) -> bytes:
        """Encode the vector for its verdict: numbers only, since the stamps stay in the rows, which only grow."""
        numbers = np.array(sorted(self.views), np.int64)
        places = np.array([self.views[p].watermark for p in numbers.tolist()], np.uint64)
        columns: dict[str, Column] = {
            "process": numbers.astype(np.uint32),
            "ms": (places >> np.uint64(16)).astype(np.int64),
            "sequence": (places & np.uint64(0xFFFF)).astype(np.uint16),
            "counts": np.array([self.views[p].record_count for p in numbers.tolist()], np.int64),
        }
        return blocks.encode_columns(blocks.VECTOR, columns)

    @classmethod
    def from_bytes(cls, raw: bytes, watermarks: Mapping[int, ProcessWatermarks]) -> "WatermarkVector":
        """Decode a vector with the app's present rows; raise ``CorruptBlock`` when they lack something it includes."""
        c, _ = blocks.decode_named(blocks.VECTOR, raw, ("process", "ms", "sequence", "counts"))
        places = pack(c["ms"], c["sequence"]).tolist()
        rows = list(zip(c["process"].tolist(), places, c["counts"].tolist(), strict=True))
        unknown = [p for p, place, n in rows if p not in watermarks or not _includes(watermarks[p], place, n)]
        if unknown:
            raise CorruptBlock("the watermarks that a vector names are not there", got=f"processes {unknown[:9]}")
        return cls({p: _view_of(watermarks[p], watermark, n) for p, watermark, n in rows})

    def knows(self, messages: Messages) -> BOOL:
        """bool[M]: the messages whose stamps are known."""
        result = np.zeros(len(messages), np.bool_)
        stamps = pack(messages.ms, messages.sequence)
        for process in np.unique(messages.process).tolist():
            view = self.views.get(process)
            if view is None:
                continue
            mine = np.flatnonzero(messages.process == process)
            here = stamps[mine]
            below = (here <= np.uint64(view.watermark)) & ~_are_among(here, view.dead_stamps)
            result[mine] = below | _are_among(here, view.adopted_stamps)
        return result


def _includes(process: ProcessWatermarks, place: int, records: int) -> bool:
    return place <= pack_place(process.watermark.place) and records <= len(process.adoptions)


def _view_of(process: ProcessWatermarks, watermark: int, records: int) -> _ProcessView:
    dead_stamps = process.dead_stamps[process.dead_stamps <= np.uint64(watermark)]
    stamps = [record.stamps for record in process.adoptions[:records]]
    is_complete = process.finished and watermark == pack_place(process.watermark.place)
    adopted = np.sort(np.concatenate(stamps)) if stamps else _NONE
    return _ProcessView(watermark, records, dead_stamps, adopted, is_complete)


def _are_among(stamps: U64, wanted: U64) -> BOOL:
    result: BOOL = np.isin(stamps, wanted)
    return result
