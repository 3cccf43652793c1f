"""Claims about spm/store/ledger/outcomes.py: one outcome per stamp and sample, whatever rows there are, in whatever
order.

``counted`` is PROTOCOL 24 in plain Python over a list of rows; the joins must say the same of any list.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spm.limits import HOUR_MS
from spm.store import epochs, keys
from spm.store.backends.base import Backend
from spm.store.backends.memory import MemoryBackend
from spm.store.encoding import blocks
from spm.store.keys import LogKey, PendingKey, PlacementTable
from spm.store.ledger import commit_records
from spm.store.ledger.commit_records import COLUMN, DEAD, EXPIRED_HOUR, REJECTED, STORED, BatchRows, Commit, ledger_key
from spm.store.ledger.outcomes import Outcomes, read_outcomes
from spm.store.ledger.watermarks import OutcomeTotals
from spm.wire import Stamp
from tests.support.faults import Faulty, flip, keys_of
from tests.support.rows import APP, START, envelope, messages, stored

SPREAD = PlacementTable.single(spread=2)
SHARDS = SPREAD.all_shards(APP)
MINUTE = 7
MESSAGES = 4  # stamps; message m holds m % 3 + 1 samples in each of its (shard, hour) rows
OUTCOME = {"waits": None, "stored": STORED, "late": EXPIRED_HOUR}


def stamp(number: int) -> Stamp:
    """Of the processes 1 and 2 in turn."""
    return Stamp(MINUTE * 60_000 + number // 2, number % 2 + 1, number)


@dataclass(frozen=True)
class Row:
    """One row of a batch: in `pending`, or already in the ledger."""

    batch: int
    shard: int
    hour: int
    rows: int
    outcome: int | None
    holds: tuple[int, ...]  # messages


@dataclass(frozen=True)
class Died:
    """A ledger row of a message's rejected or dead samples; older programs wrote no ``total``."""

    number: int
    outcome: int
    samples: int
    total: int | None
    cause: int


def put(backend: MemoryBackend, row: Row | Died) -> None:
    if isinstance(row, Died):
        totals = None if row.total is None else np.array([row.total])
        commit = Commit(
            messages([stamp(row.number)]), np.array([row.samples]), ids([row.number]), 0, 0, BatchRows.of(()), totals
        )
        key, raw = (
            keys.ledger(APP, MINUTE, row.number, row.cause),
            commit_records.encode(commit, blocks.LEDGER, row.outcome),
        )
        return backend.put([("ledger", [(key, {COLUMN: raw})])])
    place = LogKey(SHARDS[row.shard], APP, START // HOUR_MS + row.hour, MINUTE * 60_000, row.batch)
    ts = place.hour * HOUR_MS + 5
    samples = np.array([n % 3 + 1 for n in row.holds])
    names = tuple((shard, place.hour) for shard in range(row.rows))  # only how many there are counts
    commit = Commit(messages([stamp(n) for n in row.holds]), samples, ids(row.holds), ts, ts, BatchRows.of(names))
    if row.outcome is None:
        cell = {keys.hour_column(place.hour): commit_records.encode(commit, batch=row.batch)}
        return backend.put(
            [("pending", [(PendingKey(place.shard, APP, place.ingest_ms, place.batch).to_bytes(), cell)])]
        )
    raw = commit_records.encode(commit, blocks.LEDGER, row.outcome, row.batch)
    return backend.put([("ledger", [(ledger_key(place), {COLUMN: raw})])])


def ids(numbers: Sequence[int]) -> np.ndarray:
    return np.repeat(np.array(numbers, np.uint8), 16)


def counted(rows: list[Row | Died]) -> dict[Stamp, tuple[int, int, int, int, bool]]:
    """Stamp -> (stored, late, rejected, dead, whole), by plain counting."""
    there = {(r.batch, r.shard, r.hour): r for r in sorted_rows(rows)}
    outcomes = {}
    for n in range(MESSAGES):
        mine = [r for r in there.values() if n in r.holds]
        groups: dict[tuple[int, int], list[Row]] = defaultdict(list)
        for r in mine:
            groups[r.hour, r.batch].append(r)
        full: dict[int, int] = {}
        whole = False
        for (hour, batch), group in groups.items():
            if sum(r.batch == batch for r in there.values()) >= group[0].rows:
                whole, full[hour] = True, max(full.get(hour, 0), len(group))
        timely = {
            hour
            for (hour, _), group in groups.items()
            if len(group) >= full.get(hour, 0) and all(r.outcome in (None, STORED) for r in group)
        }
        each = n % 3 + 1
        in_time = each * sum(count for hour, count in full.items() if hour in timely)
        late = each * sum(full.values()) - in_time
        died = [r for r in rows if isinstance(r, Died) and r.number == n]
        sums = {}
        for outcome in (REJECTED, DEAD):
            causes = {r.cause: r.samples for r in died if r.outcome == outcome and r.total is not None}
            old = [r.samples for r in died if r.outcome == outcome and r.total is None]
            sums[outcome] = max([sum(causes.values()), *old])
        total = max([r.total for r in died if r.total is not None], default=None)
        dead = sums[DEAD] if total is None else min(sums[DEAD], max(0, total - in_time - late))
        if mine or died:
            done = whole or (total is not None and sums[DEAD] >= total)
            outcomes[stamp(n)] = (in_time, late, sums[REJECTED], dead, done)
    return outcomes


def sorted_rows(rows: list[Row | Died]) -> list[Row]:
    """Return the rows of batches; a ledger row takes precedence over a pending one."""
    return sorted((r for r in rows if isinstance(r, Row)), key=lambda r: r.outcome is not None)


def by_stamp(outcomes: Outcomes) -> dict[Stamp, tuple[int, int, int, int, bool]]:
    columns = (
        outcomes.ms,
        outcomes.process,
        outcomes.sequence,
        outcomes.stored,
        outcomes.late,
        outcomes.rejected,
        outcomes.dead,
        outcomes.are_settled,
    )
    return {Stamp(*row[:3]): row[3:] for row in zip(*(c.tolist() for c in columns), strict=True)}


numbers = st.integers(0, MESSAGES - 1)
shapes = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2)), min_size=1, max_size=4, unique=True)
holdings = st.lists(numbers, min_size=1, max_size=5).map(tuple)


@st.composite
def batches(draw: st.DrawFn) -> list[Row]:
    """One batch: some of its rows, each with messages of which one may occur twice."""
    shape, batch = draw(shapes), draw(st.integers(1, 10**6))
    rows = [
        Row(batch, shard, hour, len(shape), OUTCOME[draw(st.sampled_from(sorted(OUTCOME)))], draw(holdings))
        for shard, hour in shape
        if draw(st.integers(0, 5))
    ]
    again = [replace(r, outcome=None) for r in rows if r.outcome is not None and draw(st.booleans())]
    return rows + again


@st.composite
def deaths(draw: st.DrawFn) -> list[Died]:
    """The dead samples of a message by some causes: with its total, or as older programs wrote it."""
    number, outcome = draw(numbers), draw(st.sampled_from([REJECTED, DEAD]))
    total = draw(st.none() | st.integers(0, 12))
    causes = draw(st.lists(st.integers(0, 3), max_size=3, unique=True))
    return [Died(number, outcome, draw(st.integers(1, 9)), total, 4 * outcome + cause) for cause in causes]


some_batches = st.lists(batches(), max_size=4, unique_by=lambda rows: rows[0].batch if rows else 0)
some_deaths = st.lists(deaths(), max_size=3, unique_by=lambda rows: (rows[0].number, rows[0].outcome) if rows else 0)


@settings(max_examples=150, deadline=None)
@given(some_batches, some_deaths, st.randoms())
def test_every_sample_has_the_outcome_that_plain_counting_gives_it(
    some: object, others: object, random: object
) -> None:
    rows: list[Row | Died] = [row for group in [*some, *others] for row in group]  # type: ignore[misc]
    backend = MemoryBackend()
    random.shuffle(rows)  # type: ignore[attr-defined]
    backend.check_and_put("config", epochs.row_key(APP), COLUMN, None, epochs.encode(SPREAD))
    for row in rows:
        put(backend, row)
    assert by_stamp(read_outcomes(backend, APP, 0)) == counted(rows)


def there(*samples: tuple[int, int, float], backend: Backend | None = None) -> Backend:
    """A store in which one message waits for a run."""
    store = backend or MemoryBackend()
    store.check_and_put("config", epochs.row_key(APP), COLUMN, None, epochs.encode(SPREAD))
    return stored(envelope(samples or [(1, START + 5, 1.0)]), backend=store, spread=2)


def accounted(backend: Backend, *, outcome: int = STORED, most: int | None = None) -> None:
    """Do what a run does with all commit records, or the first: put the ledger row, then delete the record."""
    for item in list(commit_records.scan(backend, APP, list(range(256))))[:most]:
        raw = commit_records.encode(commit_records.decode(item.cell), blocks.LEDGER, outcome, item.key.batch)
        backend.put([("ledger", [(ledger_key(item.key.log(item.hour)), {COLUMN: raw})])])
        backend.delete("pending", [(item.key.to_bytes(), [keys.hour_column(item.hour)])])


@pytest.mark.parametrize("moment", range(7))
def test_records_that_a_run_moves_during_a_read_are_seen_once(moment: int) -> None:
    backend = Faulty(there())

    def run(call: str) -> None:
        if len(backend.calls) == moment + 1:
            accounted(backend.inner)

    backend.hook = run
    assert read_outcomes(backend, APP, 0).stored.tolist() == [1]


def test_samples_late_in_the_ledger_stay_late_when_a_slow_writer_puts_them_again() -> None:
    backend = there()
    [row] = [(key, dict(cells)) for key, cells in backend.scan("pending", b"", b"\xff" * 30)]
    accounted(backend, outcome=EXPIRED_HOUR)
    backend.put([("pending", [row])])
    outcomes = read_outcomes(backend, APP, 0)
    assert (outcomes.stored.tolist(), outcomes.late.tolist(), outcomes.are_settled.tolist()) == ([0], [1], [True])


def test_a_batch_of_which_one_part_was_abandoned_is_not_whole() -> None:
    backend = there((1, START + 5, 1.0), (1, START + HOUR_MS + 5, 2.0))
    assert read_outcomes(backend, APP, 0).are_settled.tolist() == [True]
    accounted(backend, outcome=commit_records.ABANDONED, most=1)
    assert not read_outcomes(backend, APP, 0).are_settled.any()
    accounted(backend)
    assert not read_outcomes(backend, APP, 0).are_settled.any()


def test_rows_in_shards_that_readers_no_longer_read_are_not_settled() -> None:
    """The epoch is closed during the read: its shards were read already, and their rows must not count."""
    backend = Faulty(there())
    epochs.open_epoch(backend.inner, APP, function="hash", shards=8, spread=1)
    closed = False

    def close(call: str) -> None:
        nonlocal closed
        if call.startswith("scan ledger") and not closed:
            closed = True
            for state in (keys.CLOSING, keys.CLOSED):
                epochs.set_state(backend.inner, APP, 0, state)

    backend.hook = close
    assert set(epochs.read(backend.inner, APP).newest.all_shards(APP)).isdisjoint(SHARDS)
    assert len(read_outcomes(backend, APP, 0)) == 0


def test_only_the_requested_minutes_of_the_ledger_are_read() -> None:
    backend = there()
    accounted(backend)
    minute = envelope([(1, START + 5, 1.0)]).stamp.ms // 60_000
    assert [len(read_outcomes(backend, APP, *span)) for span in ((minute, minute), (minute + 1,), (0, minute - 1))] == [
        1,
        0,
        0,
    ]


def test_outcomes_beyond_a_place_are_those_of_later_stamps() -> None:
    backend = there()
    stored(envelope([(1, START + 5, 1.0)], process=2, sequence=7), backend=backend, spread=2)
    packed = int(read_outcomes(backend, APP, 0).stamps[0])
    for beyond, wanted in (
        ({1: packed}, [2]),
        ({1: packed - 1}, [1, 2]),
        ({1: keys.U64, 2: keys.U64}, []),
        ({}, [1, 2]),
    ):
        assert read_outcomes(backend, APP, 0, beyond=beyond).process.tolist() == wanted


def test_every_stamp_has_its_source_and_its_message_id() -> None:
    backend = MemoryBackend()
    sent = [
        envelope([(1, START + n, 1.0)], sequence=n, source=f"h{n % 2}", message_id=bytes([n]) * 16) for n in range(5)
    ]
    stored(*sent, backend=backend)
    outcomes = read_outcomes(backend, APP, 0)
    assert [outcomes.sources[i] for i in outcomes.source] == [e.source for e in sent]
    assert [row.tobytes() for row in outcomes.message_ids] == [e.message_id for e in sent]


def test_a_damaged_row_is_left_out_and_reported() -> None:
    backend = there()
    accounted(backend)
    [key] = keys_of(backend, "ledger")
    flip(backend, "ledger", key, COLUMN)
    outcomes = read_outcomes(backend, APP, 0)
    assert (len(outcomes), outcomes.damaged) == (0, 1)


def test_another_apps_stamps_are_not_counted() -> None:
    backend = there()
    stored(envelope([(1, START + 5, 1.0)], app=APP + 1, process=9), backend=backend)
    assert read_outcomes(backend, APP, 0).process.tolist() == [1]
    assert read_outcomes(backend, APP + 2, 0).totals() == OutcomeTotals()
