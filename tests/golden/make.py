"""Makes the golden bytes: ``python -m tests.golden.make``. Files that exist are left alone, since formats are frozen.

``GOLDEN`` says what each file holds. A new version of a format gets a new file beside the old one; the old one must
decode for ever. Values are chosen so that every form of a column is in it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from spm.store import epochs, keys, manifest
from spm.store.encoding import blocks
from spm.store.encoding.blocks import LogBlock, Messages, TimelinesPage
from spm.store.encoding.chunk_page import ChunkPage
from spm.store.keys import PlacementEpoch, PlacementTable
from spm.store.ledger import commit_records, dead_letters, folded_hours, watermarks
from spm.store.ledger.commit_records import BatchRows, Commit
from spm.store.ledger.folded_hours import FoldedHour
from spm.store.ledger.rounds import Round
from spm.store.ledger.watermarks import (
    AdoptionRecord,
    Announcement,
    OutcomeTotals,
    ProcessWatermarks,
    Watermark,
    WatermarkVector,
)
from spm.store.manifest import (
    DayInputs,
    DayPack,
    Entry,
    Generation,
    HourInputs,
    HourPack,
    Manifest,
    Month,
    PreviousState,
    Replay,
    State,
)
from spm.store.matchers import Matcher
from spm.store.rollup import rows as rollup_rows
from spm.store.rollup import sketch
from spm.store.rollup.aggregates import COLUMNS, Aggregates
from spm.store.rollup.sketch import Sketches
from spm.store.versions import generations, retractions
from spm.store.versions.retractions import Retraction
from spm.wire import Envelope, SeriesTable, Stamp, canonical

FOLDER = Path(__file__).parent
STALE = np.uint64(0x7FF0000000000002).view(np.float64)
T0 = 1_699_200_000_000


@dataclass(frozen=True)
class Golden:
    """A file: the value in it, how it is read, and how it is written; ``None``: newer bytes are written by now."""

    value: Any
    write: Callable[[Any], bytes] | None
    read: Callable[[bytes], object]


def _values(count: int) -> np.ndarray:
    """Whole, decimal, stale, infinite and signed-zero values in turn."""
    kinds = [
        np.arange(count, dtype=np.float64),
        np.arange(count) / 8 + 0.25,
        np.full(count, -0.0),
        np.full(count, STALE),
    ]
    return np.concatenate([*kinds, np.array([np.inf, -np.inf, 5e-324, 0.1 + 0.2])])


def _messages() -> Messages:
    ms, process, sequence = np.array([T0, T0, T0 + 9]), np.array([1, 2, 1]), np.array([0, 65_535, 7])
    return Messages(ms, process, sequence, np.array([0, 1, 0], np.int32), ("a", "ü"))


def _log() -> LogBlock:
    values = _values(20)
    counts = np.array([20, 20, 20, 20, 4], np.int32)
    ts = np.concatenate([T0 + 10_000 * np.arange(1, n + 1) for n in counts])
    series = np.array([3, 2**63, 5, 2**64 - 1, 7], np.uint64)
    metrics = np.array([9, 9, 2**64 - 2, 8, 8], np.uint64)
    return LogBlock(_messages(), series, metrics, counts, (np.arange(84) % 3).astype(np.int32), ts, values)


def _page() -> ChunkPage:
    return ChunkPage(_log().series, np.array([0, 0, 1, 1, 2], np.int32), _log().counts, _values(20))


def _large_page(*, floats: bool = False) -> ChunkPage:
    """Series of several lengths, one of none, with odd values at the borders of pages."""
    counts = np.array([360, 361, 0, 12_500, 1, 359, 2_500, 700], np.int32)
    steps = np.arange(int(counts.sum()), dtype=np.float64)
    values = np.sqrt(steps) if floats else steps**2 % 4_099 / 100
    values[[0, 3_220, 3_221, len(values) - 1]] = STALE, -0.0, np.inf, 5e-324
    return ChunkPage(np.arange(3, 3 + len(counts), dtype=np.uint64), counts % 4, counts, values)


def _unpacked(page: ChunkPage) -> ChunkPage:
    return ChunkPage(page.series, page.timeline, page.counts, page.unpacked())


def _timelines() -> TimelinesPage:
    return TimelinesPage(_messages(), _log().counts, _log().ts, _log().message)


def _jittered() -> TimelinesPage:
    """Two sources with a message per step, off the grid; stamps stand as lags behind their times."""
    steps = np.arange(60, dtype=np.int64)
    ts = T0 + np.concatenate([10_000 * steps + steps**3 % 81, 10_000 * steps + steps**4 % 79])
    ms, number = ts + 1 + np.arange(120) ** 2 % 29, np.arange(120, dtype=np.int32)
    table = Messages(ms, np.full(120, 2**32 - 1), np.arange(120) % 3, number // 60, ("a", "ü"))
    return TimelinesPage(table, np.array([60, 60], np.int32), ts, number)


def _aggregates() -> Aggregates:
    columns = {n: (np.arange(1, 4) * (1 if kind is np.int64 else 1.5)).astype(kind) for n, kind in COLUMNS}
    return Aggregates(series=np.array([1, 2, 2**64 - 1], np.uint64), **columns, sketch=Sketches.empty())


def _sketched() -> Aggregates:
    """The same with sketches: of nothing, of one value, and of values of every kind."""
    spread = [[], [7.5] * 3, [*_values(20).tolist(), *(-_values(20)).tolist()]]
    sketches = sketch.of_winners(np.cumsum([0, *map(len, spread)]), np.array([v for values in spread for v in values]))
    return replace(_aggregates(), sketch=sketches)


def _envelope() -> Envelope:
    table = SeriesTable.from_canonical([canonical("cpu", {"host": "ü", "a": ""}), canonical("mem", {})])
    ts = T0 + np.arange(84)
    index = (np.arange(84) % 2).astype(np.int32)
    return Envelope(7, "hôst", Stamp(T0, 2**32 - 1, 65_535), bytes(range(16)), table, index, ts, _values(20), 3)


COMMIT = Commit(
    _messages(),
    np.array([5, 6, 7]),
    np.arange(48, dtype=np.uint8),
    T0 + 1,
    T0 + 9,
    BatchRows.of([(3, 472_000), (4, 472_001)]),
)
RETRACTION = Retraction(
    7,
    T0,
    T0 + 5,
    0,
    T0,
    1,
    T0 + 9,
    "hôst",
    (Matcher("__name__", "=", "cpu"), Matcher("a", "!~", "ü|")),
    "wrong unit",
    "ann@example.com",
    T0 + 6,
)
PLACED = PlacementTable(
    (PlacementEpoch(0, "hash", 16, 1, keys.CLOSED), PlacementEpoch(1, "byte", 32, 32), PlacementEpoch(3, "hash", 8, 2))
)
MANIFEST = Manifest(
    nonce=2**64 - 1,
    fence=4,
    entries={
        (3, 472_000): Entry(
            State((Generation(2**40, 2, 20), Generation(7)), (Replay(T0, 2**64 - 1),)),
            (PreviousState(6, State((Generation(5),), ()), ((3, 472_000), (4, 472_000))),),
            T0,
            T0 + 9,
            ("a", "ü"),
        )
    },
    hours={3: HourPack(Generation(8, 1), {472_000: HourInputs(b"12345678", b"", T0)})},
)
SEALED = msgspec.structs.replace(
    MANIFEST,
    seals={472_000: manifest.SEALING, 472_001: manifest.SEALED, 472_002: manifest.EXPIRED},
    hours={3: HourPack(Generation(8, 1, 31, 2), {472_000: HourInputs(b"12345678", retractions.ids([RETRACTION]), T0)})},
)
MANY_SOURCES = msgspec.structs.replace(
    SEALED, entries={**SEALED.entries, (3, 472_001): Entry(sources=("b", "c", "ü")), (4, 472_001): Entry()}
)
MONTH = Month(5, {3: DayPack(Generation(9), {19_666: DayInputs(b"12345678", b"", T0)})})
NEWER_MONTH = Month(5, {3: DayPack(Generation(9, 0, 31, 2), {19_666: DayInputs(b"12345678", b"87654321", T0)})})
INPUTS = generations.Inputs(
    (1, 2), (Replay(T0, 2**64 - 1),), {2**64 - 2: (0, 3), 8: (0,)}, 2, 84, T0, T0 + 9, ("a", "ü")
)
PLACED_BY = replace(COMMIT, epoch=3)
DIED = replace(COMMIT, rows=BatchRows.of(()), totals=np.array([5, 600, 7]))
WORDS = (Announcement(T0, 65_535, 3, 500, 2, 1, 90, T0 + 7), Announcement(T0 + 5, 0, 4, 501, 2, 0, 0, T0 + 9, True))
OUTCOMES = OutcomeTotals(10, 500, 400, 50, 7, 43, 6, 2, 1, 1)
MARK = Watermark(2**32 - 1, T0, 65_535, T0 + 7, OUTCOMES, (T0 << 16, (T0 << 16) + 5), (b"o12345678",), (b"r12345678",))
ADOPTED = AdoptionRecord(
    np.array([(T0 + n) << 16 | n % 7 for n in range(30)], np.uint64), np.array([T0 << 16], np.uint64), OUTCOMES
)
LETTER = dead_letters.DeadLetter(
    dead_letters.ROW, "a block fails its checksum", bytes(range(256)) * 2, "log", b"k" * 25
)


def _hours(cells: Mapping[bytes, bytes]) -> bytes:
    """A row of `hours` as one file: each cell with its name, in the order of names."""
    return b"".join(len(n).to_bytes(2, "big") + n + len(v).to_bytes(4, "big") + v for n, v in sorted(cells.items()))


def _cells(raw: bytes) -> dict[bytes, bytes]:
    cells, at = {}, 0
    while at < len(raw):
        size = int.from_bytes(raw[at : at + 2], "big")
        name, at = raw[at + 2 : at + 2 + size], at + 2 + size
        size = int.from_bytes(raw[at : at + 4], "big")
        cells[name], at = raw[at + 4 : at + 4 + size], at + 4 + size
    return cells


def _row(value: Aggregates) -> bytes:
    return _hours(rollup_rows.encode_rows({8: [(472_000, value), (472_003, value)]}, lambda metric, page: b"k")[0][1])


def _seen() -> dict[int, ProcessWatermarks]:
    """Marks of two processes, of which one has died with a straggler."""
    by_process = {1: Watermark(1, T0, 7, T0), 2**32 - 1: MARK}
    return {
        p: ProcessWatermarks(p, (), by_process[p], (ADOPTED,) * (p > 1), np.array(by_process[p].dead_stamps, np.uint64))
        for p in by_process
    }


def _every_form() -> dict[str, np.ndarray]:
    """Columns that take every form, and every kind of number."""
    decimals = np.arange(130) % 11 / 100
    decimals[[5, 77]] = STALE, -0.0
    kinds = {f"pco {d}": (np.arange(9) ** 2 % 251).astype(d) for d in ("<u8", "<i8", "<u4", "<i4", "<u2")}
    few: dict[str, Any] = {
        "a_hash": np.array([2**64 - 1, 5], np.uint64),
        "raw": np.array([1.5, STALE]),
        "none": np.empty(0),
    }
    packed = {"bytes": np.arange(200, dtype=np.uint8), "constant": np.full(50, STALE), "floats": _values(20)}
    return {**few, **kinds, **packed, "decimals": decimals, "whole": np.arange(50) * 3.0}


def _every_mode() -> dict[str, np.ndarray]:
    """The same, and floats that pcodec packs as multiples, with fewer bits, and as they are."""
    steps = np.arange(200) ** 2 % 251
    thirds, narrow = steps / 3, np.sqrt(steps.astype(np.float32)).astype(np.float64)
    thirds[9], narrow[7] = STALE, -np.inf
    return {**_every_form(), "multiples": thirds, "narrow": narrow, "wide": np.sqrt(steps)}


_BYTES = lambda value: value.to_bytes()  # noqa: E731
GOLDEN: dict[str, Golden] = {
    "samples/envelope-1": Golden(_envelope(), _BYTES, Envelope.from_bytes),
    "samples/columns-1": Golden(
        _every_form(),
        None,
        lambda raw: blocks.decode_columns(blocks.CHUNK, raw)[0],
    ),
    "samples/columns-1-dense": Golden(
        _every_mode(),
        lambda v: blocks.encode_columns(blocks.CHUNK, v, version=1),
        lambda raw: blocks.decode_columns(blocks.CHUNK, raw)[0],
    ),
    "samples/log-1": Golden(_log(), None, LogBlock.from_bytes),
    "samples/log-2": Golden(_log(), _BYTES, LogBlock.from_bytes),
    "samples/chunk-1": Golden(_page(), None, ChunkPage.from_bytes),
    "samples/chunk-1-dense": Golden(_page(), _BYTES, ChunkPage.from_bytes),
    "samples/chunk-2": Golden(_large_page(), _BYTES, lambda raw: _unpacked(ChunkPage.from_bytes(raw))),
    "samples/chunk-2-floats": Golden(
        _large_page(floats=True), _BYTES, lambda raw: _unpacked(ChunkPage.from_bytes(raw))
    ),
    "samples/timelines-1": Golden(_timelines(), None, TimelinesPage.from_bytes),
    "samples/timelines-2": Golden(_jittered(), _BYTES, TimelinesPage.from_bytes),
    "runs/inputs-1": Golden(INPUTS, None, generations.decode_inputs),
    "runs/inputs-2": Golden(INPUTS, generations.encode_inputs, generations.decode_inputs),
    "ledger/pending-1": Golden(COMMIT, None, commit_records.decode),
    "ledger/pending-2": Golden(COMMIT, lambda v: commit_records.encode(v, batch=2**64 - 1), commit_records.decode),
    "ledger/pending-2-epoch": Golden(
        PLACED_BY, lambda v: commit_records.encode(v, batch=2**64 - 1), commit_records.decode
    ),
    "ledger/ledger-1": Golden(COMMIT, None, lambda raw: commit_records.decode(raw, blocks.LEDGER)),
    "ledger/ledger-2": Golden(
        COMMIT,
        lambda v: commit_records.encode(v, blocks.LEDGER, commit_records.DEAD),
        lambda raw: commit_records.decode(raw, blocks.LEDGER),
    ),
    "ledger/ledger-2-totals": Golden(
        DIED,
        lambda v: commit_records.encode(v, blocks.LEDGER, commit_records.DEAD),
        lambda raw: commit_records.decode(raw, blocks.LEDGER),
    ),
    "ledger/announced-1": Golden(
        (7, WORDS),
        lambda v: blocks.encode_record(blocks.ANNOUNCED, v),
        lambda raw: watermarks._decode_announcements(raw),
    ),
    "ledger/mark-1": Golden(
        MARK, lambda v: blocks.encode_record(blocks.WATERMARK, v), lambda raw: watermarks._decode_watermark(raw)
    ),
    "ledger/round-1": Golden(
        Round(2**32 - 1, 900_000, T0, (1, 70_000), True),
        lambda v: blocks.encode_record(blocks.ROUND, v),
        lambda raw: blocks.decode_record(blocks.ROUND, raw, Round),
    ),
    "ledger/folded-1": Golden(
        FoldedHour(
            ("web-1", "web-2"),
            (360, 1),
            (3_600, 0),
            (0, 0),
            (2, 0),
            (0, 10),
            ((0, 7, 1, 360, T0, T0 + 1),),
            (1, 9),
            (T0 << 16, T0 << 16 | 5),
            (2**63, 1, 1),
            False,
        ),
        lambda v: v.to_bytes(),
        folded_hours.decode,
    ),
    "ledger/stamps-1": Golden(ADOPTED, watermarks._encode_adoption, watermarks._decode_adoption),
    "ledger/vector-1": Golden(
        WatermarkVector.of(_seen()), _BYTES, lambda raw: WatermarkVector.from_bytes(raw, _seen())
    ),
    "runs/manifest-1": Golden(MANIFEST, None, manifest.decode),
    "runs/manifest-2": Golden(SEALED, manifest.encode, manifest.decode),
    "runs/manifest-3": Golden(MANY_SOURCES, manifest._encode_numbering, manifest.decode),
    "runs/month-1": Golden(MONTH, None, manifest.decode_month),
    "runs/month-2": Golden(NEWER_MONTH, manifest.encode_month, manifest.decode_month),
    "runs/retraction-1": Golden(RETRACTION, retractions.encode, retractions.decode),
    "runs/distribution-1": Golden(PLACED, epochs.encode, epochs.decode),
    "runs/hours-1": Golden(_aggregates(), None, lambda raw: rollup_rows.decode_row(_cells(raw)).at(472_003)),
    "runs/hours-2": Golden(_sketched(), _row, lambda raw: rollup_rows.decode_row(_cells(raw)).at(472_003)),
    "samples/dead-1": Golden(
        LETTER, lambda v: dead_letters.step(1, 2, b"n" * 16, v)[1][0][1][b"v"], dead_letters.decode
    ),
}


def main() -> None:
    """Write the files that are not there yet."""
    for name, golden in GOLDEN.items():
        path = FOLDER / f"{name}.bin"
        if not path.exists() and golden.write is not None:
            path.write_bytes(golden.write(golden.value))
            print(path.name, path.stat().st_size)


if __name__ == "__main__":
    main()
