"""Claims about spm/store/settled.py: one outcome per stamp and sample, whatever rows there are, in whatever order.

``counted`` is rule 24 in plain Python over a list of rows; the joins must say the same of any list.
"""

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spm.limits import HOUR_MS
from spm.store import blocks, distribution, keys, pending
from spm.store.backends.memory import MemoryBackend
from spm.store.keys import Distribution, LogKey, PendingKey
from spm.store.pending import COLUMN, DEAD, LATE, REJECTED, STORED, Commit, account_key
from spm.store.settled import Settled, settled
from spm.wire import Stamp
from tests.store.rows import APP, START, messages

SPREAD = Distribution.single(spread=2)
BUCKETS = SPREAD.all(APP)
MINUTE = 7
MESSAGES = 4  # stamps; message m holds m % 3 + 1 samples in each of its (bucket, slot) rows
OUTCOME = {"waits": None, "stored": STORED, "late": LATE}


def stamp(number: int) -> Stamp:
    """Of the processes 1 and 2 in turn."""
    return Stamp(MINUTE * 60_000 + number // 2, number % 2 + 1, number)


@dataclass(frozen=True)
class Row:
    """One row of a batch: waiting in `pending`, or accounted for."""

    batch: int
    bucket: int
    slot: int
    rows: int
    outcome: int | None
    holds: tuple[int, ...]  # messages


@dataclass(frozen=True)
class Died:
    """An account of what was rejected or is dead of a message; ``total`` is not told by older programs."""

    number: int
    outcome: int
    samples: int
    total: int | None
    cause: int


def put(backend: MemoryBackend, row: Row | Died) -> None:
    if isinstance(row, Died):
        totals = None if row.total is None else np.array([row.total])
        commit = Commit(messages([stamp(row.number)]), np.array([row.samples]), ids([row.number]), 0, 0, (), totals)
        key, raw = keys.ledger(APP, MINUTE, row.number, row.cause), pending.encode(commit, blocks.LEDGER, row.outcome)
        return backend.put([("ledger", [(key, {COLUMN: raw})])])
    place = LogKey(BUCKETS[row.bucket], APP, START // HOUR_MS + row.slot, MINUTE * 60_000, row.batch)
    ts = place.slot * HOUR_MS + 5
    samples = np.array([n % 3 + 1 for n in row.holds])
    names = tuple((bucket, place.slot) for bucket in range(row.rows))  # only how many there are counts
    commit = Commit(messages([stamp(n) for n in row.holds]), samples, ids(row.holds), ts, ts, names)
    if row.outcome is None:
        cell = {keys.slot_column(place.slot): pending.encode(commit, batch=row.batch)}
        return backend.put(
            [("pending", [(PendingKey(place.bucket, APP, place.ingest_ms, place.batch).to_bytes(), cell)])]
        )
    raw = pending.encode(commit, blocks.LEDGER, row.outcome, row.batch)
    return backend.put([("ledger", [(account_key(place), {COLUMN: raw})])])


def ids(numbers: object) -> np.ndarray:
    return np.repeat(np.array(list(numbers), np.uint8), 16)  # type: ignore[call-overload]


def counted(rows: list[Row | Died]) -> dict[Stamp, tuple[int, int, int, int, bool]]:
    """Stamp -> (stored, late, rejected, dead, whole), by plain counting."""
    there = {(r.batch, r.bucket, r.slot): r for r in sorted_rows(rows)}
    found = {}
    for n in range(MESSAGES):
        mine = [r for r in there.values() if n in r.holds]
        groups: dict[tuple[int, int], list[Row]] = defaultdict(list)
        for r in mine:
            groups[r.slot, r.batch].append(r)
        full: dict[int, int] = {}
        whole = False
        for (slot, batch), held in groups.items():
            if sum(r.batch == batch for r in there.values()) >= held[0].rows:
                whole, full[slot] = True, max(full.get(slot, 0), len(held))
        timely = {
            slot for (slot, _), held in groups.items()
            if len(held) >= full.get(slot, 0) and all(r.outcome in (None, STORED) for r in held)
        }  # fmt: skip
        each = n % 3 + 1
        in_time = each * sum(count for slot, count in full.items() if slot in timely)
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
            found[stamp(n)] = (in_time, late, sums[REJECTED], dead, done)
    return found


def sorted_rows(rows: list[Row | Died]) -> list[Row]:
    """Rows of batches; what is accounted for stands over what waits."""
    return sorted((r for r in rows if isinstance(r, Row)), key=lambda r: r.outcome is not None)


def told(found: Settled) -> dict[Stamp, tuple[int, int, int, int, bool]]:
    columns = (
        found.ms,
        found.process,
        found.sequence,
        found.stored,
        found.late,
        found.rejected,
        found.dead,
        found.whole,
    )
    return {Stamp(*row[:3]): row[3:] for row in zip(*(c.tolist() for c in columns), strict=True)}  # type: ignore[misc]


numbers = st.integers(0, MESSAGES - 1)
shapes = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2)), min_size=1, max_size=4, unique=True)
holdings = st.lists(numbers, min_size=1, max_size=5).map(tuple)


@st.composite
def batches(draw: st.DrawFn) -> list[Row]:
    """One batch: some of its rows, each with messages of which one may stand in it twice."""
    shape, batch = draw(shapes), draw(st.integers(1, 10**6))
    rows = [
        Row(batch, bucket, slot, len(shape), OUTCOME[draw(st.sampled_from(sorted(OUTCOME)))], draw(holdings))
        for bucket, slot in shape
        if draw(st.integers(0, 5))
    ]
    again = [replace(r, outcome=None) for r in rows if r.outcome is not None and draw(st.booleans())]
    return rows + again


@st.composite
def deaths(draw: st.DrawFn) -> list[Died]:
    """What died of a message by some causes: with its total, or as older programs wrote it."""
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
    backend.check_and_put("config", distribution.name_of(APP), COLUMN, None, distribution.encode(SPREAD))
    for row in rows:
        put(backend, row)
    assert told(settled(backend, APP, 0)) == counted(rows)
