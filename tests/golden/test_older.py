"""Claims about stores that the version before wrote: they are read, compacted and answered from as if written today.

``older`` turns a store into what that version would have written, cell by cell: frames of version 1, hours without
sketches, generations of form 1.
"""

from collections.abc import Mapping

import msgspec
import numpy as np
import pytest

from ingest.writer import Writer
from rollups.run.driver import Driver
from rollups.run.local import LocalExecutor
from spm.clock import FakeClock
from spm.errors import CorruptBlock
from spm.limits import HOUR_MS
from spm.store import keys, manifest
from spm.store.backends.base import Backend
from spm.store.backends.memory import MemoryBackend
from spm.store.encoding import blocks, codec
from spm.store.keys import PlacementTable
from spm.store.manifest import Generation, Manifest, State
from spm.store.rollup import rows as rollup_rows
from spm.store.rollup.aggregates import Aggregates, concatenate
from spm.store.versions import generations
from spm.wire import Envelope
from tests.support.rows import APP, HOUR, START, envelope, plain
from tests.support.store_reader import look, reader

NUMBERED = (blocks.LOG, blocks.PENDING, blocks.LEDGER, blocks.TIMELINES)
LATER = START + 30 * HOUR_MS


def older(store: Backend) -> Backend:
    copy = MemoryBackend()
    for table in keys.TABLES:
        rows = [(key, _cells(table, cells)) for key, cells in store.scan(table, b"", b"\xff" * 64)]
        copy.put([(table, rows)])
    return copy


def _cells(table: str, cells: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    if table in ("series", "config"):
        return dict(cells)
    if table == "manifest":
        return {name: _manifest(raw) for name, raw in cells.items()}
    return {name: _frame(raw) for name, raw in cells.items() if name != rollup_rows.CELLS[rollup_rows.SKETCH]}


def _frame(raw: bytes) -> bytes:
    kind = raw[0]
    if kind == blocks.INPUTS:
        return blocks.frame(kind, b"\0" + msgspec.msgpack.encode(generations.decode_inputs(raw)), version=1)
    if kind in NUMBERED:
        columns, texts = blocks.decode_columns(kind, raw)
        packed = [(n, *codec.encode(c, random=n.endswith("_hash"))) for n, c in columns.items()]
        return blocks.frame(kind, msgspec.msgpack.encode((texts, packed)), version=1)
    return raw


def _manifest(raw: bytes) -> bytes:
    """Days only: months hold no generations that these tests read."""
    try:
        now = manifest.decode(raw)
    except CorruptBlock:
        return raw
    of_form_1 = {unit: msgspec.structs.replace(e, state=_state(e.state)) for unit, e in now.entries.items()}
    hours = {b: msgspec.structs.replace(h, generation=_first(h.generation)) for b, h in now.hours.items()}
    return manifest.encode(Manifest(now.nonce, now.fence, of_form_1, hours, now.seals))


def _state(state: State) -> State:
    return State(tuple(map(_first, state.generations)), state.replay)


def _first(generation: Generation) -> Generation:
    return msgspec.structs.replace(generation, form=1)


def sent(first: int, count: int) -> list[Envelope]:
    """A message per step of ten seconds and host, each with two series."""
    return [
        envelope(
            [(2 * host + s, START + 10_000 * step + host * 7, float(step % 5 + s)) for s in (0, 1)],
            ms=START + 10_000 * step + 20 + host * 13,
            sequence=host,
            source=f"h{host}",
            message_id=bytes([host]) * 16,
        )
        for step in range(first, first + count)
        for host in range(3)
    ]


def written(messages: list[Envelope], store: Backend | None = None) -> Backend:
    store = store or MemoryBackend()
    writer = Writer(store, PlacementTable())
    for at in range(0, len(messages), 4):
        writer.write(messages[at : at + 4])
    return store


def roll(store: Backend) -> None:
    report = Driver(store, FakeClock(LATER)).roll(LocalExecutor(store), [APP])
    assert not report.errors


def versions(store: Backend) -> set[tuple[int, int]]:
    """(kind, version) of every cell that is a frame."""
    tables = [table for table in keys.TABLES if table not in ("series", "config")]
    rows = [cells for table in tables for _, cells in store.scan(table, b"", b"\xff" * 64)]
    return {(raw[0], raw[1]) for cells in rows for raw in cells.values()}


@pytest.mark.parametrize("rolled", [False, True], ids=["as written", "rolled up"])
def test_an_older_store_gives_the_answers_of_one_written_today(rolled: bool) -> None:
    store = written(sent(1, 50))
    if rolled:
        roll(store)
    before = older(store)
    assert max(version for _, version in versions(before)) == 1
    assert look(reader(before)) == look(reader(store)) == plain(sent(1, 50))


def test_an_older_store_is_compacted_with_what_comes_now() -> None:
    """Pending cells, blocks, a generation and hours of the version before, and messages of today."""
    store = written(sent(1, 50))
    roll(store)
    store = written(sent(101, 20), older(written(sent(51, 50), older(store))))
    assert {(blocks.LOG, 1), (blocks.LOG, 2)} <= versions(store)
    assert look(reader(store)) == plain(sent(1, 120))
    roll(store)
    assert look(reader(store)) == plain(sent(1, 120))
    [entry] = [m.entries for m in _manifests(store)]
    assert [g.form for e in entry.values() for g in e.state.generations] == [generations.FORM]


def test_hours_of_an_older_store_lack_their_sketches_until_they_are_made_again() -> None:
    store = written(sent(1, 50))
    roll(store)
    store = older(store)
    assert not _hours(store).has_sketch.any()
    roll(written(sent(51, 10), store))
    assert _hours(store).has_sketch.all()
    assert _hours(store).sketch.sizes.tolist() == _hours(store).count.tolist()


def test_an_upgrade_puts_rows_of_today_in_force() -> None:
    store = written(sent(1, 50))
    roll(store)
    store = older(store)
    report = Driver(store, FakeClock(LATER)).roll(LocalExecutor(store), [APP], upgrade=True)
    assert not report.errors
    [now] = _manifests(store)
    assert {g.form for e in now.entries.values() for g in e.state.generations} == {generations.FORM}
    assert {h.generation.form for h in now.hours.values()} == {rollup_rows.FORM}
    assert _hours(store).has_sketch.all()
    assert look(reader(store)) == plain(sent(1, 50))


def _manifests(store: Backend) -> list[Manifest]:
    [row] = store.get("manifest", [keys.manifest(APP, HOUR // 24)])
    return [manifest.decode(row[b"v"])] if row else []


def _hours(store: Backend) -> Aggregates:
    """The hours in force of the hour."""
    [(shard, pack)] = _manifests(store)[0].hours.items()
    metrics = sorted({int(m) for e in sent(1, 1) for m in e.series.metrics})
    names = [keys.hours(shard, APP, metric, HOUR // 24, pack.generation.number, 0) for metric in metrics]
    parts = [rollup_rows.decode_row(row).at(HOUR) for row in store.get("hours", names) if row]
    assert np.all([len(part) for part in parts])
    return concatenate(parts)
