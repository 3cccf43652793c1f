"""A reader over a store, and its answers in the plain shape that ``tests.support.rows.plain`` has."""

import numpy as np

from spm.clock import FakeClock
from spm.query.reader import AppStorage
from spm.query.request.batches import METRIC_NAME, Matcher
from spm.query.view.decoded_rows import PageCache
from spm.store import keys, manifest
from spm.store.backends.base import Backend
from spm.store.keys import PlacementTable
from spm.store.manifest import Entry, Generation, Manifest, Replay, State
from spm.store.versions import generations as versions_generations
from spm.store.versions.merge import Piece, merge
from spm.wire import canonical
from tests.support.faults import keys_of
from tests.support.rows import APP, START

EVERY = [Matcher(METRIC_NAME, "=~", ".+")]
NOW = START + 3 * 3_600_000


def reader(backend: Backend, *, clock: FakeClock | None = None, app: int = APP, spread: int = 1) -> AppStorage:
    """A reading process that has just started."""
    distribution = PlacementTable.single(spread=spread)
    return AppStorage(backend, app, placement=distribution, clock=clock or FakeClock(NOW), cache=PageCache())


def look(storage: AppStorage, start: int = 0, end: int = 2 * START) -> dict[tuple[bytes, int], int]:
    """(canonical form, ts) -> bits of every sample in the answer; each must be there once, in the order of time."""
    batch = storage.select(EVERY, start, end)
    counts: dict[tuple[bytes, int], int] = {}
    for i, labels in enumerate(batch.labels):
        name = canonical(labels[METRIC_NAME], {k: v for k, v in labels.items() if k != METRIC_NAME})
        part = slice(int(batch.offsets[i]), int(batch.offsets[i + 1]))
        assert (np.diff(batch.ts[part]) > 0).all()
        bits = batch.values[part].view(np.int64)
        counts.update({(name, int(t)): int(v) for t, v in zip(batch.ts[part], bits, strict=True)})
    return counts


def roll(
    backend: Backend,
    number: int,
    *,
    app: int = APP,
    spread: int = 1,
    settle: bool = True,
    minor: bool = False,
    replay: bool = False,
) -> None:
    """Does a whole run at once: every pending hour becomes generation ``number`` (one more with ``minor``).

    Without ``settle`` it stops after it has published, with the pending cells still there. With ``replay`` it is a roll
    back instead: all blocks of every hour go on the replay list and no generation stays.
    """
    hour_shards: dict[tuple[int, int], set[Replay]] = {}
    for key in keys_of(backend, "log"):
        at = keys.LogKey.parse(key)
        if at.app == app:
            hour_shards.setdefault((at.shard, at.hour), set()).add(Replay(at.ingest_ms, at.batch))
    for (shard, hour), batches in hour_shards.items():
        cell = keys.manifest(app, hour // 24)
        [row] = backend.get("manifest", [cell])
        was = None if row is None else row[b"v"]
        now = manifest.decode(was)
        before = now.entry(shard, hour).state.generations
        batches_ = tuple(b for g in before for b in _inputs(backend, app, shard, hour, g).batches) if minor else ()
        generation_ = _generation(
            backend, versions_generations.HourShard(shard, app, hour), number, sorted(batches - set(batches_))
        )
        generations = (*(before if minor else ()), generation_)
        state = State((), tuple(sorted(batches))) if replay else State(generations)
        entries = {**now.entries, (shard, hour): Entry(state)}
        flipped = Manifest(now.nonce + 1, now.fence, entries, now.hours)
        assert backend.check_and_put("manifest", cell, b"v", was, manifest.encode(flipped))
    if settle:
        backend.delete(
            "pending", [(k, None) for k in keys_of(backend, "pending") if keys.PendingKey.parse(k).app == app]
        )


def _inputs(backend: Backend, app: int, shard: int, hour: int, generation: Generation) -> versions_generations.Inputs:
    generation_ = versions_generations.read_inputs(
        backend, versions_generations.HourShard(shard, app, hour), generation
    )
    assert generation_ is not None
    return generation_


def _generation(
    backend: Backend, unit: versions_generations.HourShard, number: int, batches: list[Replay]
) -> Generation:
    names = [keys.LogKey(unit.shard, unit.app, unit.hour, b.ingest_ms, b.batch).to_bytes() for b in batches]
    pieces = [Piece.of_row(row) for row in backend.get("log", names) if row is not None]
    generation_ = versions_generations.paginate(
        unit, number, merge(pieces), parents=(), batches=batches, samples_max=20
    )
    backend.put(
        [("chunks", generation_.chunks), ("timelines", generation_.timelines), ("inputs", [generation_.inputs])]
    )
    return generation_.generation
