"""The actors of the world in ``world.py``, the mixes of acts in a history, and how its data is read."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ingest.accept.announcer import StampAnnouncer
from rollups.compute.source import read_hour_shard
from rollups.decide.plan import MergeKind
from rollups.decide.work import HourShardTask
from spm.clock import FakeClock
from spm.store import keys, manifest
from spm.store.backends.base import Reader
from spm.store.ledger import commit_records
from spm.store.ledger.commit_records import Commit
from spm.store.ledger.outcomes import Outcomes
from spm.store.manifest import Replay
from spm.store.versions.merge import Piece
from spm.store.versions.visibility import Visibility
from spm.wire import Parsed, Stamp
from tests.model.accept.stage import Actor
from tests.model.world import APP, DAY, SPREAD, form_of, metric_of, parsed

BUCKETS = sorted(SPREAD.all_shards(APP))
Version = tuple[int, int, int, int, Stamp]  # series, metric, ts, bits, stamp


@dataclass(frozen=True)
class Mix:
    """What happens in a history, and how often."""

    actors: Mapping[str, int]
    direct: bool = False  # the accepting process writes to the store itself
    skew: bool = False
    tail: bool = False  # verdicts may be judged by what was read for one before
    deaths: bool = False  # series whose ids are taken, times that no row can hold, refused lines
    late: bool = False  # samples for an hour that is sealed
    past: bool = False  # samples of the first hour are of long ago


USUAL = {"accept": 8, "announce": 6, "worker": 10, "keeper": 6, "judge": 5, "replay": 3, "compact": 2}
MIXES = {
    "queue": Mix(USUAL),
    "small": Mix({"accept": 3, "announce": 3, "worker": 5, "keeper": 4, "judge": 3, "replay": 2}),
    "skew": Mix({**USUAL, "end": 2}, skew=True),
    "kill": Mix({**USUAL, "end": 3, "undead": 1}),
    "dead": Mix({**USUAL, "worker": 14, "undead": 3}, deaths=True),
    "direct": Mix({**USUAL, "worker": 0, "end": 2}, direct=True, skew=True),
    "tail": Mix(USUAL, tail=True),
    "late": Mix(USUAL, late=True),
    "past": Mix({**USUAL, "end": 2}, skew=True, past=True),
    "all": Mix(
        {**USUAL, "accept": 10, "announce": 8, "worker": 14, "keeper": 8, "compact": 3, "end": 3, "undead": 2},
        skew=True,
        tail=True,
        deaths=True,
        late=True,
    ),
}


@dataclass
class SkewedClock:
    """A process' own clock."""

    world: FakeClock
    skew_ms: int = 0

    def now_ms(self) -> int:
        return self.world.now_ms() + self.skew_ms

    def monotonic(self) -> float:
        return self.world.monotonic()

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody waits here")


@dataclass
class Process:
    """An accepting process, what runs in it, and whether it announces right now."""

    accepting: StampAnnouncer
    clock: SkewedClock
    alive: bool = True
    announcing: bool = False
    actors: list[Actor] = field(default_factory=list)


@dataclass
class Message:
    """A message in the queue."""

    body: bytes
    stamp: Stamp
    tries: int = 0


@dataclass(frozen=True)
class Ways:
    """What a verdict's maker must do right, and a test may do wrong."""

    e_first: bool = True  # E is read before the data
    tail_e: bool = True  # what was read before is judged by the E of then
    dead_restamp: bool = True  # a dead letter that is replayed is a new acceptance
    never_give_up: bool = True  # what is stamped is published until it is confirmed


def forged(body: Parsed) -> Parsed:
    """Series 3 and 4 bear the ids of 0 and 1, which are of the same metrics."""
    ids = body.series.ids.copy()
    forms = [body.series.canonical(i) for i in range(len(body.series))]
    for other in (3, 4):
        if form_of(other) in forms:
            assert metric_of(other) == metric_of(other - 3)
            ids[forms.index(form_of(other))] = parsed([(other - 3, 1, 0.0)]).series.ids[0]
    return replace(body, series=replace(body.series, ids=ids))


def versions(reader: Reader) -> list[Piece]:
    """All data, as a reader finds it: pending, then the manifest, then rows; sealed hours are left out."""
    waiting: dict[tuple[int, int], list[Replay]] = {}
    for item in commit_records.scan(reader, APP, BUCKETS):
        waiting.setdefault((item.key.shard, item.hour), []).append(Replay(item.key.ingest_ms, item.key.batch))
    [row] = reader.get("manifest", [keys.manifest(APP, DAY)], [b"v"])
    now = manifest.decode(row[b"v"] if row else None)
    pieces: list[Piece] = []
    for bucket, hour in sorted({*waiting, *now.entries}):
        if now.seal(hour) == manifest.OPEN:
            state, fresh = now.entry(bucket, hour).state, tuple(waiting.get((bucket, hour), ()))
            task = HourShardTask(APP, bucket, hour, MergeKind.FULL, state.generations, state.replay, fresh, 0, False)
            pieces += read_hour_shard(reader, task).pieces
    return pieces


def versions_seen(piece: Piece, visibility: Visibility) -> list[Version]:
    visible = visibility.visible_rows(piece)
    rows = np.arange(len(piece)) if visible is None else np.flatnonzero(visible)
    owner = np.repeat(np.arange(len(piece.series)), piece.counts)[rows]
    m, message = piece.messages, piece.message[rows]
    stamps = map(Stamp, m.ms[message].tolist(), m.process[message].tolist(), m.sequence[message].tolist())
    values = piece.values[rows].view(np.int64).tolist()
    columns = (piece.series[owner].tolist(), piece.metrics[owner].tolist(), piece.ts[rows].tolist(), values, stamps)
    return list(zip(*columns, strict=True))


def counts_of(outcome: Outcomes) -> list[tuple[Stamp, tuple[int, int, int, int, bool]]]:
    stamps = map(Stamp, outcome.ms.tolist(), outcome.process.tolist(), outcome.sequence.tolist())
    columns = (outcome.stored, outcome.late, outcome.rejected, outcome.dead, outcome.are_settled)
    return list(zip(stamps, zip(*(c.tolist() for c in columns), strict=True), strict=True))


def wholly_written(reader: Reader) -> set[Stamp]:
    """The messages of batches of which every row is there, counted row by row."""
    rows: dict[int, set[bytes]] = {}
    wanted: dict[int, int] = {}
    stamps: dict[int, set[Stamp]] = {}

    def note(batch: int, row: bytes, commit: Commit) -> None:
        m = commit.messages
        rows.setdefault(batch, set()).add(row)
        wanted[batch] = len(commit.rows)
        stamps.setdefault(batch, set()).update(map(Stamp, m.ms.tolist(), m.process.tolist(), m.sequence.tolist()))

    for item in commit_records.scan(reader, APP, BUCKETS):
        note(item.key.batch, commit_records.ledger_key(item.key.log(item.hour)), commit_records.decode(item.cell))
    for key, cells in reader.scan("ledger", *keys.ledger_range(APP)):
        commit, outcome, batch = commit_records.decode_ledger_row(cells[commit_records.COLUMN])
        if outcome in (commit_records.STORED, commit_records.EXPIRED_HOUR):
            note(batch, key, commit)
    return {stamp for batch, own in stamps.items() if len(rows[batch]) >= wanted[batch] for stamp in own}
