"""Hours of the ledger are folded to sums: no answer changes, whatever is killed or comes later, and few bytes stay."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.writer import Writer
from spm.limits import HOUR_MS
from spm.store import keys
from spm.store.backends import open_backend
from spm.store.backends.base import Backend
from spm.store.backends.memory import MemoryBackend
from spm.store.encoding import blocks
from spm.store.keys import LogKey, PlacementTable
from spm.store.ledger import commit_records, folded_hours, watermarks
from spm.store.ledger.balance import Balance, read_balance
from spm.store.ledger.balance_hours import NumberGap, find_gaps, read_hours
from spm.store.ledger.folding import FoldResult, fold
from spm.store.ledger.limits import KEPT_MS
from spm.store.ledger.watermarks import Watermark
from tests.model.balance_world import START_MS, STORED, World
from tests.support.faults import Faulty, flip
from tests.support.rows import APP
from tests.support.rows import envelope as envelope_of

HISTORIES = int(os.environ.get("SPM_HISTORIES", "12"))
FIRST, LAST = START_MS // HOUR_MS - 1, START_MS // HOUR_MS + 3
Sums = dict[tuple[int, str], tuple[int, ...]]  # (hour, source) → messages, stored, late, rejected, dead
Answers = tuple[Sums, list[NumberGap], dict[str, int], Balance]


class LaterWorld(World):
    """What may happen once a watermark has passed: a message that it counted as dead is not stored any more."""

    ACTS = {name: weight for name, weight in World.ACTS.items() if name != "redeliver"}


def answers(world: World) -> Answers:
    """What is said of the hours of a world, and of the present: sums, gaps, numbers by source, the balance."""
    hours = list(read_hours(world.store, APP, FIRST, LAST))
    assert not any(hour.damaged or hour.runs_cut for hour in hours)
    columns = [(h, (h.messages, h.stored, h.late, h.rejected, h.dead)) for h in hours]
    sums = {
        (hour.number, source): tuple(int(column[place]) for column in of_hour)
        for hour, of_hour in columns
        for place, source in enumerate(hour.sources)
    }
    numbers: dict[str, int] = {}
    for run in (run for hour in hours for run in hour.runs):
        numbers[run.source] = numbers.get(run.source, 0) + run.last - run.first + 1
    return sums, list(find_gaps(hours)), numbers, read_balance(world.store, APP, world.clock.now_ms())


def purge_blocks(store: Backend, share: float, draw: random.Random) -> None:
    """Delete some of the blocks that a run has compacted."""
    pending = {item.key.batch for item in commit_records.scan(store, APP, list(range(16)))}
    for shard in range(16):
        for key, _ in list(store.scan("log", *keys.log_range(shard, APP))):
            if keys.LogKey.parse(key).batch not in pending and draw.random() < share:
                store.delete("log", [(key, None)])


def ledger_rows(store: Backend) -> int:
    return sum(commit_records.COLUMN in cells for _, cells in store.scan("ledger", *keys.ledger_range(APP)))


def folded(store: Backend) -> FoldResult:
    """Fold as if everything were old enough."""
    return fold(store, APP, START_MS + KEPT_MS + 24 * HOUR_MS)


def world_of(seed: int, acts: int, store: Backend | None = None) -> World:
    """A random world, some of whose messages lie in the next hour."""
    world = LaterWorld(random.Random(seed), store or MemoryBackend())  # type: ignore[arg-type]
    for number in range(acts):
        world.act()
        if number == acts // 2:
            world.settle_all()  # rows are looked for from ten minutes before an hour on
            world.clock.advance(HOUR_MS // 2)
    return world


@pytest.mark.seed("A11", compares="sums, gaps and balance of a folded ledger with its twin that has all rows")
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.5, 1.0]))
@settings(max_examples=HISTORIES, deadline=None)
def test_a_folded_ledger_answers_as_its_twin_that_keeps_all_rows_whatever_comes_later(seed: int, purged: float) -> None:
    world, twin = world_of(seed, 60), world_of(seed, 60)
    for number in range(30):
        if number % 6 == 0:
            world.advance_watermarks()
            twin.advance_watermarks()
            purge_blocks(world.store, purged, random.Random(number))
            folded(world.store)
        assert answers(world) == answers(twin), number
        assert world.act() == twin.act()
    assert answers(world) == answers(twin)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=max(2, HISTORIES // 4), deadline=None)
def test_a_fold_that_is_killed_at_any_call_changes_no_answer_and_the_next_one_does_its_work(seed: int) -> None:
    whole, point = purged_world(seed), 0
    before, done = answers(whole), folded(whole.store)
    while point < 60:
        killed = purged_world(seed)
        store = Faulty(killed.store)
        store.hook = kills_at(point)
        try:
            folded(store)
        except Killed:
            assert answers(killed) == before, point
            folded(killed.store)
            assert answers(killed) == before, point
            assert ledger_rows(killed.store) == ledger_rows(whole.store)
            point += 1
        else:
            break
    assert point > 3 or not done.rows


def purged_world(seed: int) -> World:
    """A random world whose compacted blocks are all purged."""
    world = world_of(seed, 60)
    world.advance_watermarks()
    purge_blocks(world.store, 1.0, random.Random(0))
    return world


class Killed(BaseException):
    """The process ends here."""


def kills_at(point: int) -> Callable[[str], None]:
    calls = iter(range(10**9))

    def hook(_: str) -> None:
        if next(calls) == point:
            raise Killed

    return hook


def settled_world(store: Backend | None = None) -> World:
    """Everything is settled, a run has taken all, and every block was purged."""
    world = world_of(20, 80, store)
    world.settle_all()
    world.advance_watermarks()
    take_all(world)
    purge_blocks(world.store, 1.0, random.Random(0))
    return world


@pytest.mark.parametrize("kind", ["memory", "lmdb"])
def test_of_settled_hours_nothing_but_sums_stays(kind: str, tmp_path: Path) -> None:
    world = settled_world(open_backend(f"lmdb://{tmp_path}/store") if kind == "lmdb" else None)
    before, rows = answers(world), ledger_rows(world.store)
    result = folded(world.store)
    assert (result.hours, result.rows) == (2, rows - ledger_rows(world.store))
    assert rows > 20
    marks = watermarks.read(world.store, APP)
    for _, cells in world.store.scan("ledger", *keys.ledger_range(APP), columns=[commit_records.COLUMN]):
        left = commit_records.decode(cells[commit_records.COLUMN], blocks.LEDGER).messages
        stamps = zip(left.process.tolist(), left.ms.tolist(), left.sequence.tolist(), strict=True)
        assert any(tuple(place) > marks[process].watermark.place for process, *place in stamps)
    assert answers(world) == before
    assert folded(world.store) == FoldResult(0, 0)


def test_young_hours_keep_their_rows() -> None:
    world = settled_world()
    rows = ledger_rows(world.store)
    assert fold(world.store, APP, START_MS + KEPT_MS - HOUR_MS) == FoldResult(0, 0)
    assert ledger_rows(world.store) == rows


def blocks_of(world: World) -> list[LogKey]:
    spans = [keys.log_range(shard, APP) for shard in range(16)]
    return [LogKey.parse(key) for span in spans for key, _ in world.store.scan("log", *span)]


def folded_world() -> World:
    """All is settled, runs have taken it, the ledger is folded; then some messages are stored and taken once more."""
    world = world_of(20, 80)
    world.settle_all()
    world.advance_watermarks()
    take_all(world)
    folded(world.store)
    again = [message.envelope for message in world.messages if message.place == STORED]
    for envelope in again[:4]:
        world.writer.write([envelope])
    take_all(world)
    return world


def test_an_hour_of_which_a_batch_waits_for_a_run_is_left_alone() -> None:
    world = world_of(20, 80)
    world.settle_all()
    world.advance_watermarks()
    waiting = {item.key.ingest_ms // HOUR_MS for item in commit_records.scan(world.store, APP, list(range(16)))}
    folded(world.store)
    assert waiting
    assert not waiting & folded_hours.read(world.store, APP, range(FIRST, LAST + 1)).keys()
    take_all(world)
    folded(world.store)
    assert waiting <= folded_hours.read(world.store, APP, range(FIRST, LAST + 1)).keys()


def take_all(world: World) -> None:
    """Runs take all commit records."""
    while list(commit_records.scan(world.store, APP, list(range(16)))):
        world.roll()


def test_of_blocks_without_ledger_rows_it_is_still_known_that_a_run_has_compacted_them() -> None:
    """A purge would take them for such that no run has compacted, and a rebuild would compact them again."""
    world = folded_world()
    folded(world.store)
    blocks_left = blocks_of(world)
    rows = world.store.get("ledger", [commit_records.ledger_key(block) for block in blocks_left])
    assert None in rows
    named = folded_hours.are_compacted(world.store, APP, blocks_left)
    assert all(row is not None or is_named for row, is_named in zip(rows, named, strict=True))
    other = LogKey(3, APP, 1, START_MS, 7)
    assert folded_hours.are_compacted(world.store, APP, [other]) == [False]


def test_rows_that_came_after_the_fold_stay_while_a_block_of_their_batch_does() -> None:
    world = folded_world()
    before, blocks_left = answers(world), blocks_of(world)
    named = folded_hours.are_compacted(world.store, APP, blocks_left)
    unnamed = {block.batch for block, is_named in zip(blocks_left, named, strict=True) if not is_named}
    folded(world.store)
    writers = {keys.parse_ledger(key).writer for key, _ in world.store.scan("ledger", *keys.ledger_range(APP))}
    assert unnamed
    assert unnamed <= writers
    assert answers(world) == before
    purge_blocks(world.store, 1.0, random.Random(0))
    assert folded(world.store).rows > 0
    assert answers(world) == before


def test_hours_that_cannot_be_folded_keep_no_older_one_from_its_turn() -> None:
    """The newest hundred are of a process whose messages are not settled; a day folds ten hours."""
    store, first = MemoryBackend(), START_MS // HOUR_MS - 200
    writer = Writer(store, PlacementTable())
    for hour in range(first, first + 200):
        process = 1 if hour < first + 100 else 2
        message = envelope_of([(1, START_MS, 1.0)], ms=hour * HOUR_MS + 1, process=process)
        writer.write_dead_letter(message, "cannot be written")
    cell = blocks.encode_record(blocks.WATERMARK, Watermark(1, START_MS))
    store.check_and_put("marks", keys.watermark(APP, 1), b"m", None, cell)
    days = 0
    while ledger_rows(store) > 100 and days < 60:
        fold(store, APP, START_MS + KEPT_MS + days * 24 * HOUR_MS, hours_max=10)
        days += 1
    assert ledger_rows(store) == 100
    assert days <= 50, "with half of each day's hours it takes twenty days if none is visited twice"


def test_a_damaged_sum_is_said_and_hides_no_row() -> None:
    world = settled_world()
    folded(world.store)
    hour = START_MS // HOUR_MS
    flip(world.store, "ledger", folded_hours.key(APP, hour), folded_hours.COLUMN)
    damaged = {h.number: h.damaged for h in read_hours(world.store, APP, FIRST, LAST)}
    assert damaged[hour] == 1
    assert damaged[hour + 1] == 0
    rows = ledger_rows(world.store)
    assert folded(world.store) == FoldResult(0, 0)
    assert ledger_rows(world.store) == rows
