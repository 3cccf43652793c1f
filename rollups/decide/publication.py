"""Computes the manifest that a run publishes from the old one (PROTOCOL 14, 16).

``apply_changes`` returns the new value; ``rebase`` applies the changes to a manifest that others have changed since the
plan, or says that the work must be dropped. ``rollups.manifest.publish`` writes the value, by one check-and-put per
(app, day).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from spm import limits
from spm.store.manifest import (
    OPEN,
    Entry,
    Generation,
    HourPack,
    Manifest,
    PreviousState,
    Replay,
    State,
    joined_sources,
)


@dataclass(frozen=True, slots=True)
class EntryChange:
    """The change of one hour shard's entry: a new generation, and the generations and replayed batches it replaces."""

    shard: int
    hour: int
    generation: Generation
    replaced: tuple[Generation, ...]
    replayed: tuple[Replay, ...]
    stamp_min_ms: int
    stamp_max_ms: int
    sources: tuple[str, ...]


def apply_changes(
    manifest: Manifest, changes: Sequence[EntryChange], hours: Mapping[int, HourPack], *, run: int, nonce: int
) -> Manifest:
    """The manifest after a run has published its changes."""
    entries = dict(manifest.entries)
    for change in changes:
        entries[change.shard, change.hour] = entry_after(manifest.entry(change.shard, change.hour), change, run)
    return msgspec.structs.replace(manifest, nonce=nonce, entries=entries, hours={**manifest.hours, **hours})


def entry_after(entry: Entry, change: EntryChange, run: int) -> Entry:
    """An hour shard's entry after its change; what others have added since the plan stays in force."""
    replaced, replayed = {g.number for g in change.replaced}, set(change.replayed)
    others = tuple(g for g in entry.state.generations if g.number not in replaced)
    # A full merge holds the oldest data, so it goes first; what a minor run adds is the newest.
    generations = (change.generation, *others) if replaced else (*others, change.generation)
    replay = tuple(r for r in entry.state.replay if r not in replayed)
    stamps = [m for m in (entry.stamp_min_ms, change.stamp_min_ms) if m]
    return Entry(
        state=State(generations, replay),
        history=(*entry.history, PreviousState(run, entry.state))[-limits.HISTORY_MAX :],
        stamp_min_ms=min(stamps, default=0),
        stamp_max_ms=max(entry.stamp_max_ms, change.stamp_max_ms),
        sources=joined_sources((part.stamp_max_ms, part.sources) for part in (entry, change)),
    )


def rebase(
    now: Manifest,
    *,
    planned: Manifest,
    changes: Sequence[EntryChange],
    hours: Mapping[int, HourPack],
    run: int,
    nonce: int,
) -> Manifest | None:
    """Applies the changes to a manifest that is not the planned one any more; ``None``: the work must be dropped.

    That is possible only if no purge has set its fence, no hour is sealing, and all that is replaced is still in force.
    Packs of hours go in only where the pack in force is the planned one; they keep the fingerprints of their inputs.
    """
    if now.fence != planned.fence or not all(_fits(now, change) for change in changes):
        return None
    unchanged = {b: h for b, h in hours.items() if now.hours.get(b) == planned.hours.get(b)}
    return apply_changes(now, changes, unchanged, run=run, nonce=nonce)


def _fits(now: Manifest, change: EntryChange) -> bool:
    entry = now.entry(change.shard, change.hour)
    in_force = {g.number for g in entry.state.generations}
    replaced = {g.number for g in change.replaced}
    return now.seal(change.hour) == OPEN and replaced <= in_force and set(change.replayed) <= set(entry.state.replay)


def is_published(now: Manifest, changes: Sequence[EntryChange], nonce: int) -> bool:
    """Whether a write of unknown outcome went in: its nonce is there, or a later value names its generations."""
    if now.nonce == nonce:
        return True
    return any(change.generation.number in _named(now.entry(change.shard, change.hour)) for change in changes)


def _named(entry: Entry) -> set[int]:
    """Every generation that an entry's state or history names."""
    states = (entry.state, *(former.state for former in entry.history))
    return {g.number for state in states for g in state.generations}
