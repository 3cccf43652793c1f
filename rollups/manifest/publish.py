"""Publishes a day's manifest, writes its ledger rows and removes its pending records (PROTOCOL 14, 15, 23).

``publish_day`` puts a day's changes into force, and rebases them where that is sound, at most
``PUBLISH_TRIES_MAX`` times; ``publish_exactly``, for moves and seals, replaces the very bytes that the plan was made
from, and never rebases. ``settle`` writes the ledger rows of
pending records and removes the records; ``settle_late`` does so for samples that came too late for a sealed hour.
"""

from collections.abc import Callable, Mapping, Sequence

from rollups.crash_points import Hook
from rollups.decide import publication
from rollups.decide.day_result import DayResult, ledger_outcomes, ledger_row
from rollups.decide.plan import DayPlan, PendingCommit
from rollups.decide.publication import EntryChange
from rollups.manifest import cells
from spm import limits
from spm.clock import random_u64
from spm.store import epochs, keys, manifest
from spm.store.backends.base import Backend
from spm.store.ledger import commit_records, folded_hours
from spm.store.ledger.commit_records import ledger_key
from spm.store.manifest import HourPack, Manifest
from spm.store.versions import generations as versions_generations
from spm.store.versions.generations import HourShard


def publish_day(
    store: Backend, work: DayResult, hours: Mapping[int, HourPack], *, run: int, at: Hook
) -> Manifest | None:
    """Publishes the entire cell by check-and-put; on a conflict it rebases or drops the work (PROTOCOL 14).

    Returns the published value, or ``None`` if the work is dropped. If the outcome is unknown, the cell is read again.
    """
    key = keys.manifest(work.plan.app, work.plan.day)
    expected, now = work.plan.cell, work.plan.manifest
    for _ in range(limits.PUBLISH_TRIES_MAX):
        nonce = random_u64()
        value = publication.rebase(
            now, planned=work.plan.manifest, changes=work.changes, hours=hours, run=run, nonce=nonce
        )
        if value is None:
            return None
        is_in, expected, is_final = cells.swap(
            store, key, expected, manifest.encode(value), _is_ours(work.changes, nonce)
        )
        at("publish sent")
        if is_in or not is_final:
            return value if is_in else None  # if not final, it may still go in: the next run merges equal versions
        now = manifest.decode(expected)
    return None


def publish_exactly(store: Backend, plan: DayPlan, value: Manifest, changes: Sequence[EntryChange], at: Hook) -> bool:
    """Publishes ``value`` if the cell is still the planned one; returns whether it is in."""
    key = keys.manifest(plan.app, plan.day)
    is_in, _, _ = cells.swap(store, key, plan.cell, manifest.encode(value), _is_ours(changes, value.nonce))
    at("publish sent")
    return is_in


def _is_ours(changes: Sequence[EntryChange], nonce: int) -> Callable[[bytes | None], bool]:
    return lambda cell: publication.is_published(manifest.decode(cell), changes, nonce)


def settle(
    store: Backend, app: int, items: Sequence[PendingCommit], at: Hook, outcome: int = commit_records.STORED
) -> None:
    """Writes the ledger rows, then removes exactly these pending records, if their epochs allow it (PROTOCOL 15)."""
    settled = ledger_outcomes(items, epochs.read(store, app), outcome) if items else []
    store.put([("ledger", [ledger_row(app, item, of) for item, of in settled])])
    at("ledger written")
    by_row: dict[bytes, list[bytes]] = {}
    for item, _ in settled:
        by_row.setdefault(item.key.to_bytes(), []).append(keys.hour_column(item.hour))
    keys.check_app(app, "pending", by_row)
    store.delete("pending", list(by_row.items()))
    at("unpended")


def settle_late(store: Backend, plan: DayPlan, at: Hook) -> int:
    """Settles pending records of sealed hours; returns how many samples came too late.

    A batch in the sealed generations was in time: the process that sealed the hour died before it could settle the
    batch. So this must run before the rows of a sealed hour are deleted. A batch that the ledger has as stored stays
    stored: its writer may have put the record once more after an unknown outcome, long after it was settled.
    """
    if not plan.late_pending:
        return 0
    stored = {place: _batches_in(store, plan, *place) for place in {(w.key.shard, w.hour) for w in plan.late_pending}}
    late_blocks = [item.key.log(item.hour) for item in plan.late_pending]
    names = [ledger_key(block) for block in late_blocks]
    timely: list[PendingCommit] = []
    late: list[PendingCommit] = []
    rows = store.get("ledger", names, [cells.COLUMN])
    folded = folded_hours.are_compacted(store, plan.app, late_blocks)  # after the rows
    for item, row, is_folded in zip(plan.late_pending, rows, folded, strict=True):
        is_in = item.key.batch in stored[item.key.shard, item.hour] or is_folded or _is_stored(row)
        (timely if is_in else late).append(item)
    if timely:
        settle(store, plan.app, timely, at)
    if late:
        settle(store, plan.app, late, at, commit_records.EXPIRED_HOUR)
        at("late counted")
    return sum(item.commit.sample_count for item in late)


def _is_stored(row: dict[bytes, bytes] | None) -> bool:
    return row is not None and commit_records.decode_ledger_row(row[cells.COLUMN])[1] == commit_records.STORED


def _batches_in(store: Backend, plan: DayPlan, shard: int, hour: int) -> set[int]:
    """The batches inside the generations of an hour shard, as far as their inputs rows still exist."""
    hour_shard = HourShard(shard, plan.app, hour)
    generations = plan.manifest.entry(shard, hour).state.generations
    all_inputs = [versions_generations.read_inputs(store, hour_shard, generation) for generation in generations]
    return {replay.batch for inputs in all_inputs if inputs is not None for replay in inputs.batches}
