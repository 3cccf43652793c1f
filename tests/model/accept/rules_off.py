"""What happens when a rule of balances and watermarks is broken: each is switched off in the real code.

``RULES``: the name of the rule, what is done instead, how, and in which histories it shows. Each must come out right
as long as the rule is kept.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from ingest import writer as ingest_writer
from ingest.accept import announcer
from ingest.accept.stamper import Stamper
from ingest.accounting import watermark_keeper
from ingest.writer import WriteBatch, Writer
from rollups.crash_points import Hook
from rollups.decide.day_result import ledger_row
from rollups.decide.plan import PendingCommit
from rollups.manifest import publish
from spm.arrays import BOOL, I64
from spm.errors import StoreUnavailable
from spm.store import keys
from spm.store.backends.base import Backend, Reader
from spm.store.backends.memory import MemoryBackend
from spm.store.dictionary import COLUMN
from spm.store.encoding.blocks import Messages
from spm.store.ledger import commit_records, outcomes, watermarks
from spm.store.ledger.commit_columns import CellOrError, CommitCell, open_cells
from spm.store.ledger.outcomes import Outcomes
from spm.store.ledger.watermarks import AdoptionRecord, Announcement, OutcomeTotals, ProcessWatermarks, WatermarkVector
from spm.wire import Envelope, Stamp
from tests.model.accept import world as accept_world
from tests.model.accept.cast import Ways, versions
from tests.model.accept.world import SILENCE_MS, World
from tests.model.world import APP, SPREAD, Sample, parsed
from tests.support.faults import Faulty

Patch = pytest.MonkeyPatch
NONE = np.empty(0, np.uint64)


@dataclass(frozen=True)
class Off:
    """One rule, and how it is broken."""

    name: str
    instead: str
    where: str | Callable[[], None]  # a mix of histories to be searched, or one history for what is rare
    patch: Callable[[Patch], None] = lambda patch: None
    ways: Ways | None = None


def one_number(patch: Patch) -> None:
    def knows(self: WatermarkVector, messages: Messages) -> BOOL:
        least = min((seen.watermark for seen in self.views.values() if seen.watermark), default=0)
        return watermarks.pack(messages.ms, messages.sequence) <= np.uint64(least)

    patch.setattr(WatermarkVector, "knows", knows)


def nobody_counts(patch: Patch) -> None:
    patch.setattr(
        watermark_keeper, "reachable_announcement", lambda m, settled: next(iter(m.open_announcements()[::-1]), None)
    )


def numbers_come_again(patch: Patch) -> None:
    numbers = itertools.cycle([1, 2])
    patch.setattr(announcer, "take_process", lambda backend: next(numbers))


def the_clock_stamps(patch: Patch) -> None:
    given = itertools.count()
    patch.setattr(Stamper, "_next", lambda self: Stamp(self._clock.now_ms(), self.process, next(given) % 65_536))


def the_watermark_of_a_gone_process_moves(patch: Patch) -> None:
    def moved(store: Backend, app: int, m: ProcessWatermarks, settled: Outcomes) -> int:
        seen = np.flatnonzero(settled.are_settled)
        if not len(seen):
            return 0
        last = int(seen[-1])
        n = m.messages + len(seen)
        word = Announcement(int(settled.ms[last]), int(settled.sequence[last]), n, 0, 0, 0, 0, 0)
        return int(watermark_keeper._move(store, app, m, word, settled))

    patch.setattr(watermark_keeper, "_adopt", moved)


def anything_seen_is_adopted(patch: Patch) -> None:
    def adopt(store: Backend, app: int, m: ProcessWatermarks, settled: Outcomes) -> int:
        fresh = settled.stamps[~np.isin(settled.stamps, m.adopted_stamps)]
        return (
            int(watermarks.adopt(store, app, m, AdoptionRecord(fresh, NONE, OutcomeTotals(len(fresh)))))
            if len(fresh)
            else 0
        )

    patch.setattr(watermark_keeper, "_adopt", adopt)
    patch.setattr(accept_world.World, "audit_mark", lambda self, m, done: None)  # it would be seen by the counts


def the_dead_are_not_named(patch: Patch) -> None:
    move = watermarks.move

    def silent(
        store: Backend,
        app: int,
        m: ProcessWatermarks,
        word: Announcement,
        *,
        totals: OutcomeTotals,
        dead_stamps: object,
    ) -> bool:
        return move(store, app, m, word, totals=totals, dead_stamps=NONE)

    patch.setattr(watermarks, "move", silent)


class Newest:
    """The watermark vector E as one time: the newest watermark's millisecond."""

    def __init__(self, ms: int) -> None:
        self.ms = ms

    @classmethod
    def of(cls, processes: dict[int, ProcessWatermarks]) -> "Newest":
        return cls(max((m.watermark.ms for m in processes.values()), default=0))

    def to_bytes(self) -> bytes:
        return str(self.ms).encode()

    @classmethod
    def from_bytes(cls, raw: bytes, processes: object) -> "Newest":
        return cls(int(raw))

    def knows(self, messages: Messages) -> BOOL:
        known: BOOL = messages.ms <= self.ms
        return known


def a_time_is_kept(patch: Patch) -> None:
    patch.setattr(accept_world, "WatermarkVector", Newest)


def nothing_is_written_of_the_dead(patch: Patch) -> None:
    patch.setattr(ingest_writer, "_ledger_rows", lambda whole, lost: [])


def settledadd_up(patch: Patch) -> None:
    died, joined = outcomes._count_dead, outcomes._join
    dead_counts: list[I64] = []

    def remember(e: Any, cells: list[CommitCell], count: int) -> tuple[I64, I64, I64]:
        counts = died(e, cells, count)
        dead_counts[:] = [counts[1]]
        return counts

    def uncapped(cells: list[CommitCell], damaged: int) -> Outcomes:
        return replace(joined(cells, damaged), dead=dead_counts[0])

    patch.setattr(outcomes, "_count_dead", remember)
    patch.setattr(outcomes, "_join", uncapped)


def twins_hide_each_other(patch: Patch) -> None:
    joined = outcomes._join

    def by_id(cells: list[CommitCell], damaged: int) -> Outcomes:
        settled = joined(cells, damaged)
        first = np.zeros(len(settled), np.bool_)
        first[np.unique(settled.message_ids, axis=0, return_index=True)[1]] = True
        return settled.select(first)

    patch.setattr(outcomes, "_join", by_id)


def counts_are_added(patch: Patch) -> None:
    commits = outcomes._scan_commits

    def apart(reader: Reader, app: int, shards: Sequence[int]) -> Iterable[tuple[bytes, bytes]]:
        return ((b"x" + key, cell) for key, cell in commits(reader, app, shards))

    patch.setattr(outcomes, "_scan_commits", apart)


def the_account_comes_last(patch: Patch) -> None:
    def settle(
        store: Backend, app: int, items: Sequence[PendingCommit], at: Hook, outcome: int = commit_records.STORED
    ) -> None:
        store.delete("pending", [(i.key.to_bytes(), [keys.hour_column(i.hour)]) for i in items])
        store.put([("ledger", [ledger_row(app, item, outcome) for item in items])])

    patch.setattr(publish, "settle", settle)


def one_row_is_enough(patch: Patch) -> None:
    def one(cell: CellOrError) -> CellOrError:
        return replace(cell, rows=1) if isinstance(cell, CommitCell) else cell

    patch.setattr(outcomes, "open_cells", lambda raws, kind: [one(cell) for cell in open_cells(raws, kind)])


def read_then_put(patch: Patch) -> None:
    def put(self: MemoryBackend, table: str, column: bytes, rows: Sequence[tuple[bytes, bytes]]) -> list[bytes | None]:
        self.put([(table, [(key, {column: value}) for key, value in rows])])
        return [None] * len(rows)

    patch.setattr(MemoryBackend, "check_and_put_many", put)


def series_come_last(patch: Patch) -> None:
    commit = Writer.commit

    def late(self: Writer, batch: WriteBatch) -> None:
        commit(self, replace(batch, series=replace(batch.series, rows=())))
        self._backend.check_and_put_many("series", COLUMN, batch.series.rows)

    patch.setattr(Writer, "commit", late)


# --- histories for what chance seldom finds ---------------------------------------------------------------------------


def world_of(*samples: Sample) -> tuple[World, Envelope]:
    """A world in which one message waits in the queue and is announced."""
    world = World(0, "small")
    world.push(parsed(samples), bytes(16))
    world.announce_all()
    return world, Envelope.from_bytes(world.queue.pop().body)


def silence(world: World) -> int:
    """A time at which every process seems to be gone."""
    return world.clock.now_ms() + SILENCE_MS


def judged_again(world: World) -> None:
    """Every verdict, by what is there now."""
    for verdict in world.verdicts:
        world.compare(*verdict, versions(world.inner))


def a_slow_worker_stores_a_dead_message() -> None:
    world, envelope = world_of((0, 1, 1.0))
    slow = Writer(world.inner, SPREAD)
    batch = slow.prepare([envelope])
    Writer(world.inner, SPREAD).write_dead_letter(envelope, "cannot be written")
    assert watermark_keeper.advance_watermarks(world.inner, APP, world.clock.now_ms()).moved
    world.judge()
    slow.commit(batch)
    judged_again(world)


def half_a_batch(world: World, envelope: Envelope) -> Callable[[], None]:
    """Put one of a batch's two commit records; the rest follows when it is called."""
    writer = Writer(world.inner, SPREAD)
    batch = writer.prepare([envelope])
    world.inner.check_and_put_many("series", COLUMN, batch.series.rows)
    for table, rows in batch.steps:
        assert table != "pending" or len(rows) > 1, "the metrics of the message lie in one shard"
        world.inner.put([(table, rows[:1] if table == "pending" else rows)])
    return lambda: writer.commit(batch)


def half_a_batch_is_there_when_the_keeper_looks(later_ms: int) -> None:
    world, envelope = world_of((0, 1, 1.0), (2, 1, 2.0))
    rest = half_a_batch(world, envelope)
    watermark_keeper.advance_watermarks(world.inner, APP, world.clock.now_ms() + later_ms)
    world.judge()
    rest()
    judged_again(world)
    world.queue.clear()
    world.check_sight()


def the_first_of_two_comes_after_its_process_is_gone() -> None:
    world, first = world_of((0, 1, 1.0))
    process = next(p for p in world.processes if first.stamp.process in p.accepting._stampers)
    second = process.accepting.stamp_message(app=APP, source="host", parsed=parsed([(0, 2, 2.0)]), message_id=bytes(16))
    world.accepted[second.stamp] = second
    Writer(world.inner, SPREAD).write([second])
    watermark_keeper.advance_watermarks(world.inner, APP, silence(world))
    world.judge()
    Writer(world.inner, SPREAD).write([first])
    judged_again(world)


def a_write_that_stops_anywhere() -> None:
    for calls in range(9):
        world, envelope = world_of((0, 1, 1.0), (2, 1, 2.0))
        with suppress(StoreUnavailable):
            Writer(Faulty(world.inner, fails_at=calls), SPREAD).write([envelope])
        world.check_series(versions(world.inner))


RULES = (
    Off("vector", "E is one number, the least watermark", "queue", one_number),
    Off("count_marks", "a watermark moves as soon as it is announced", "queue", nobody_counts),
    Off("never_give_up", "a message in doubt is dropped and not counted", "queue", ways=Ways(never_give_up=False)),
    Off("fresh_process", "a start takes a number that was used before", "kill", numbers_come_again),
    Off("mono_stamp", "a stamp is what the clock says", "skew", the_clock_stamps),
    Off(
        "adopt",
        "the watermark of a process that is gone moves to the last stamp seen",
        the_first_of_two_comes_after_its_process_is_gone,
        the_watermark_of_a_gone_process_moves,
    ),
    Off(
        "adopt_whole",
        "half a batch is adopted",
        partial(half_a_batch_is_there_when_the_keeper_looks, SILENCE_MS),
        anything_seen_is_adopted,
    ),
    Off(
        "dead_out",
        "a watermark passes dead stamps without naming them",
        a_slow_worker_stores_a_dead_message,
        the_dead_are_not_named,
    ),
    Off("e_first", "data is read, then E", "queue", ways=Ways(e_first=False)),
    Off("tail_e", "data of before is judged with today's E", "tail", ways=Ways(tail_e=False)),
    Off("keep_e", "a verdict keeps a time", "queue", a_time_is_kept),
    Off("dead_restamp", "a dead letter that is replayed keeps its stamp", "dead", ways=Ways(dead_restamp=False)),
    Off("settle_row", "of what died nothing is written", "dead", nothing_is_written_of_the_dead),
    Off("stored_wins", "a sample that is stored and dead counts twice", "dead", settledadd_up),
    Off("by_stamp", "a request that was sent again hides its twin", "queue", twins_hide_each_other),
    Off("distinct", "pending and ledger are added", "queue", counts_are_added),
    Off("ledger_first", "the pending cell goes before the account is written", "queue", the_account_comes_last),
    Off(
        "batch_names_rows",
        "one row of a batch is enough",
        partial(half_a_batch_is_there_when_the_keeper_looks, 0),
        one_row_is_enough,
    ),
    Off("series_cas", "a series is read, then put", "dead", read_then_put),
    Off("series_first", "series come after the samples", a_write_that_stops_anywhere, series_come_last),
)
