"""The acts at the end of a day's work: its flip, its account, its pending cells (rules 14, 15 and 23).

``flip_day`` puts a day's work into force, by rebasing where that is sound; ``flip_exactly`` puts a value in place of
the very bytes that were planned from, and never rebases: so do moves and seals. ``settle`` writes the account of
pending cells and removes them; ``settle_late`` does so for what came too late for a sealed hour.
"""

from collections.abc import Callable, Mapping, Sequence

from rollups.crash_points import Hook
from rollups.decide import publication
from rollups.decide.outcome import Work, account, told
from rollups.decide.plan import DayPlan, Waiting
from rollups.decide.publication import Change
from rollups.manifest import cells
from spm import limits
from spm.clock import random_u64
from spm.store import epochs, keys, manifest
from spm.store.backends.base import Backend
from spm.store.ledger import commit_records
from spm.store.ledger.commit_records import ledger_key
from spm.store.manifest import Hours, Manifest
from spm.store.versions import generations as versions_generations
from spm.store.versions.generations import HourShardData


def flip_day(store: Backend, work: Work, hours: Mapping[int, Hours], *, run: int, at: Hook) -> Manifest | None:
    """Rule 14: the whole cell by check-and-put; a lost one is rebased or dropped, an unknown one looked up.

    The value that went in; ``None`` when the work is dropped.
    """
    key = keys.manifest(work.plan.app, work.plan.day)
    expected, now = work.plan.cell, work.plan.manifest
    for _ in range(limits.ROLL_REPLANS_MAX):
        nonce = random_u64()
        value = publication.rebase(
            now, planned=work.plan.manifest, changes=work.changes, hours=hours, run=run, nonce=nonce
        )
        if value is None:
            return None
        landed, expected, final = cells.swap(store, key, expected, manifest.encode(value), _landed(work.changes, nonce))
        at("flip sent")
        if landed or not final:
            return value if landed else None  # what is not final may still go in: the next run merges equal versions
        now = manifest.decode(expected)
    return None


def flip_exactly(store: Backend, plan: DayPlan, value: Manifest, changes: Sequence[Change], at: Hook) -> bool:
    """Put ``value`` in place of the planned cell, or nothing."""
    key = keys.manifest(plan.app, plan.day)
    landed, _, _ = cells.swap(store, key, plan.cell, manifest.encode(value), _landed(changes, value.nonce))
    at("flip sent")
    return landed


def _landed(changes: Sequence[Change], nonce: int) -> Callable[[bytes | None], bool]:
    return lambda cell: publication.landed(manifest.decode(cell), changes, nonce)


def settle(store: Backend, app: int, items: Sequence[Waiting], at: Hook, outcome: int = commit_records.STORED) -> None:
    """Rule 15: the account first, then exactly these pending cells, as far as their epochs allow."""
    settled = told(items, epochs.read(store, app), outcome) if items else []
    store.put([("ledger", [account(app, item, of) for item, of in settled])])
    at("ledger written")
    by_row: dict[bytes, list[bytes]] = {}
    for item, _ in settled:
        by_row.setdefault(item.key.to_bytes(), []).append(keys.hour_column(item.hour))
    store.delete("pending", list(by_row.items()))
    at("unpended")


def settle_late(store: Backend, plan: DayPlan, at: Hook) -> int:
    """Account for pending cells of sealed hours and remove them; returns how many samples came too late.

    A batch that the sealed generations hold was in time: whoever sealed the hour died before it could settle it. So
    this must be done before the rows of a sealed hour are deleted. What is accounted for as stored stays so: a writer
    that took its put for lost may have put it once more, long after it was settled.
    """
    if not plan.late:
        return 0
    held = {place: _held(store, plan, *place) for place in {(w.key.shard, w.hour) for w in plan.late}}
    names = [ledger_key(item.key.log(item.hour)) for item in plan.late]
    timely: list[Waiting] = []
    late: list[Waiting] = []
    for item, row in zip(plan.late, store.get("ledger", names, [cells.COLUMN]), strict=True):
        inside = item.key.batch in held[item.key.shard, item.hour] or _is_stored(row)
        (timely if inside else late).append(item)
    if timely:
        settle(store, plan.app, timely, at)
    if late:
        settle(store, plan.app, late, at, commit_records.EXPIRED_HOUR)
        at("late counted")
    return sum(item.commit.sample_count for item in late)


def _is_stored(account: dict[bytes, bytes] | None) -> bool:
    return account is not None and commit_records.decode_ledger_row(account[cells.COLUMN])[1] == commit_records.STORED


def _held(store: Backend, plan: DayPlan, shard: int, hour: int) -> set[int]:
    """Batches inside the generations of a unit, as far as their inputs are still there."""
    unit = HourShardData(shard, plan.app, hour)
    generations = plan.manifest.entry(shard, hour).state.generations
    made = [versions_generations.read_inputs(store, unit, generation) for generation in generations]
    return {replay.batch for inputs in made if inputs is not None for replay in inputs.batches}
