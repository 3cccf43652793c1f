"""Which rows nobody can need any more, decided from values alone (rules 19 to 21).

A listing names what there is: generations of units and packs, and blocks, each with its place and number (``Listed``,
the columns of a frame as well). A ``Word`` is what the manifests say of the same places. ``verdict`` gives the reason
why something goes, or ``None``: it stays. Reading, fencing and deleting stand in ``purge``; nothing here does any.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from spm.limits import DAY_HOURS
from spm.store.manifest import SEALED, Entry, Manifest, Month, State, first_day_of

SUPERSEDED = "superseded"  # something in force, or in history, was made of it
ORPHAN = "orphan"  # of a run that died or lost, or was rolled back: nobody names it
COVERED = "covered"  # a block whose samples stand in chunks
EXPIRED = "expired"  # its hour's retention is over
REASONS = (SUPERSEDED, ORPHAN, COVERED, EXPIRED)

Place = tuple[int, int, int]  # shard, hour, number; a pack's hour is the first of its day or month


class Listed(NamedTuple):
    """What a scan found under one number: rows of a table, and their bytes where they were weighed."""

    table: str
    shard: int
    hour: int
    number: int  # generation; in `log` the batch
    rows: int = 1
    size_bytes: int = 0

    @property
    def place(self) -> Place:
        """Where it lies, in any table."""
        return self.shard, self.hour, self.number


@dataclass(frozen=True, slots=True)
class Word:
    """What manifests say of an app: what stays, what was left of it by then, which hours have no raw any more."""

    named: frozenset[Place] = frozenset()
    parents: frozenset[Place] = frozenset()  # what the named ones were made of, and what their history has let go
    sealed: frozenset[int] = frozenset()
    held: Mapping[tuple[int, int], frozenset[int]] = field(default_factory=dict)  # (shard, hour) → batches covered

    @classmethod
    def of(cls, manifests: Mapping[int, Manifest], months: Mapping[int, Month]) -> "Word":
        """From the manifests in force, by day and by month. What was made of what stands in `inputs`, not here."""
        named: set[Place] = set()
        for day, value in manifests.items():
            named |= named_by_day(day, value)
        for month, found in months.items():
            named |= named_by_month(month, found)
        sealed = frozenset(hour for value in manifests.values() for hour, seal in value.seals.items() if seal >= SEALED)
        return cls(frozenset(named), sealed=sealed)


def verdict(listed: Listed, word: Word) -> str | None:
    """Why it goes; ``None``: it stays."""
    sealed = listed.hour in word.sealed
    if listed.table == "log":
        if sealed:
            return EXPIRED
        return COVERED if listed.number in word.held.get((listed.shard, listed.hour), ()) else None
    if listed.place in word.named:
        return None  # of a sealed hour too: ``seal`` deletes those, in an order of its own
    if listed.place in word.parents:
        return SUPERSEDED
    return EXPIRED if sealed and listed.table in ("chunks", "timelines") else ORPHAN


def doomed(listing: Iterable[Listed], word: Word) -> dict[Listed, str]:
    """What of a listing goes, and why."""
    found = {listed: verdict(listed, word) for listed in listing}
    return {listed: reason for listed, reason in found.items() if reason is not None}


def named_by_day(day: int, value: Manifest) -> set[Place]:
    """Every generation that a day's manifest needs: of units with their history, and of packs of hours."""
    named = {
        (shard, hour, generation.number)
        for (shard, hour), entry in value.entries.items()
        for state in states(entry)
        for generation in state.generations
    }
    return named | {(shard, day * DAY_HOURS, pack.generation.number) for shard, pack in value.hours.items()}


def named_by_month(month: int, value: Month) -> set[Place]:
    """Every generation of days that a month needs."""
    first = first_day_of(month) * DAY_HOURS
    return {(shard, first, pack.generation.number) for shard, pack in value.days.items()}


def states(entry: Entry) -> list[State]:
    """What is in force of a unit, and what was before."""
    return [entry.state, *(former.state for former in entry.history)]


def cut(now: Manifest, keep: int, nonce: int) -> Manifest:
    """The manifest with only ``keep`` former states of each unit, and a new fence."""
    entries = {
        unit: msgspec.structs.replace(entry, history=entry.history[len(entry.history) - keep :] if keep else ())
        if len(entry.history) > keep
        else entry
        for unit, entry in now.entries.items()
    }
    return msgspec.structs.replace(now, nonce=nonce, fence=nonce, entries=entries)
