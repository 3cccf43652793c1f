"""What a run changes in a manifest, as a pure function from the old value to the new one (rules 14 and 16).

``apply`` makes the value that a flip puts; ``rebase`` makes it anew for a manifest that has moved since, or says that
the work must be dropped. The flip itself, one check-and-put per (app, day), is ``run``'s.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from spm import limits
from spm.store.manifest import OPEN, Entry, Generation, Hours, Manifest, PreviousEntry, Replay, State


@dataclass(frozen=True, slots=True)
class Change:
    """One unit's part of a flip: the generation that goes in, the generations and replayed batches it stands for."""

    shard: int
    hour: int
    made: Generation
    replaced: tuple[Generation, ...]
    taken: tuple[Replay, ...]
    stamp_min_ms: int
    stamp_max_ms: int
    sources: tuple[str, ...]


def apply(
    manifest: Manifest, changes: Sequence[Change], hours: Mapping[int, Hours], *, run: int, nonce: int
) -> Manifest:
    """The manifest after the flip of a run."""
    entries = dict(manifest.entries)
    for change in changes:
        entries[change.shard, change.hour] = entry_after(manifest.entry(change.shard, change.hour), change, run)
    return msgspec.structs.replace(manifest, nonce=nonce, entries=entries, hours={**manifest.hours, **hours})


def entry_after(entry: Entry, change: Change, run: int) -> Entry:
    """A unit's entry after its change; what others have added since the plan stays in force."""
    gone, taken = {g.number for g in change.replaced}, set(change.taken)
    kept = tuple(g for g in entry.state.generations if g.number not in gone)
    # A full merge stands for the oldest data, so it goes first; what a minor run adds is the newest.
    generations = (change.made, *kept) if gone else (*kept, change.made)
    replay = tuple(r for r in entry.state.replay if r not in taken)
    stamps = [m for m in (entry.stamp_min_ms, change.stamp_min_ms) if m]
    return Entry(
        state=State(generations, replay),
        history=(*entry.history, PreviousEntry(run, entry.state))[-limits.HISTORY_MAX :],
        stamp_min_ms=min(stamps, default=0),
        stamp_max_ms=max(entry.stamp_max_ms, change.stamp_max_ms),
        sources=tuple(sorted({*entry.sources, *change.sources})),
    )


def rebase(
    now: Manifest,
    *,
    planned: Manifest,
    changes: Sequence[Change],
    hours: Mapping[int, Hours],
    run: int,
    nonce: int,
) -> Manifest | None:
    """The same flip onto a manifest that is not the planned one any more; ``None``: the work must be dropped.

    Only when no purge has put up its fence, no unit is sealing, and all that is replaced is still in force. Hours go in
    only where the pack is as planned, and keep the fingerprints of what they were made of.
    """
    if now.fence != planned.fence or not all(_fits(now, change) for change in changes):
        return None
    unchanged = {b: h for b, h in hours.items() if now.hours.get(b) == planned.hours.get(b)}
    return apply(now, changes, unchanged, run=run, nonce=nonce)


def _fits(now: Manifest, change: Change) -> bool:
    entry = now.entry(change.shard, change.hour)
    in_force = {g.number for g in entry.state.generations}
    replaced = {g.number for g in change.replaced}
    return now.seal(change.hour) == OPEN and replaced <= in_force and set(change.taken) <= set(entry.state.replay)


def landed(now: Manifest, changes: Sequence[Change], nonce: int) -> bool:
    """Whether a flip of unknown outcome went in: its nonce is there, or a later value carries its generations."""
    if now.nonce == nonce:
        return True
    return any(change.made.number in _named(now.entry(change.shard, change.hour)) for change in changes)


def _named(entry: Entry) -> set[int]:
    """Every generation that an entry's state or history names."""
    states = (entry.state, *(former.state for former in entry.history))
    return {g.number for state in states for g in state.generations}
