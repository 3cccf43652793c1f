"""Decides from values alone which rows no reader can need any more (PROTOCOL 19–21).

A listing names the rows that exist: generations of hour shards and packs, and blocks, each with its place and number
(``ListedRows``, which are also the columns of a frame). ``References`` are what the manifests name at those places.
``deletion_reason`` says why rows go, or ``None`` if they stay. ``purge`` finds out by reading which batches are covered
and which generations are ancestors, fences and deletes; nothing here does. No row has an age here: what no manifest
names, beyond the last ``PURGE_HISTORY`` states of an hour shard, goes at the next purge.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from spm.limits import DAY_HOURS
from spm.store.manifest import SEALED, Entry, Manifest, Month, State, first_day_of

SUPERSEDED = "superseded"  # it was merged into something in force or in history
ORPHAN = "orphan"  # no manifest names it: its run died, lost a race or was rolled back
COVERED = "covered"  # a block whose samples are in chunks
EXPIRED = "expired"  # its hour's retention is over
REASONS = (SUPERSEDED, ORPHAN, COVERED, EXPIRED)

Place = tuple[int, int, int]  # shard, hour, number; a pack's hour is the first of its day or month


class ListedRows(NamedTuple):
    """The rows of one generation or block in one table, with their bytes where they were measured."""

    table: str
    shard: int
    hour: int
    number: int  # generation; in `log` the batch
    rows: int = 1
    size_bytes: int = 0

    @property
    def place(self) -> Place:
        """Its (shard, hour, number), which is the same in every table."""
        return self.shard, self.hour, self.number


@dataclass(frozen=True, slots=True)
class References:
    """What the manifests of an app refer to: rows that stay, their inputs, and the hours without raw samples."""

    named: frozenset[Place] = frozenset()
    parents: frozenset[Place] = frozenset()  # inputs of the named ones, and what was cut from their history
    sealed: frozenset[int] = frozenset()
    covered: Mapping[tuple[int, int], frozenset[int]] = field(default_factory=dict)  # (shard, hour) → batches covered

    @classmethod
    def of(cls, manifests: Mapping[int, Manifest], months: Mapping[int, Month]) -> "References":
        """The references of the manifests in force, by day and by month. Parents are in `inputs`, not in manifests."""
        named: set[Place] = set()
        for day, value in manifests.items():
            named |= named_by_day(day, value)
        for month, month_value in months.items():
            named |= named_by_month(month, month_value)
        sealed = frozenset(hour for value in manifests.values() for hour, seal in value.seals.items() if seal >= SEALED)
        return cls(frozenset(named), sealed=sealed)


def deletion_reason(rows: ListedRows, references: References) -> str | None:
    """Why the rows go; ``None``: they stay."""
    sealed = rows.hour in references.sealed
    if rows.table == "log":
        if sealed:
            return EXPIRED
        return COVERED if rows.number in references.covered.get((rows.shard, rows.hour), ()) else None
    if rows.place in references.named:
        return None  # also of a sealed hour: ``sweep`` deletes those, in its own order
    if rows.place in references.parents:
        return SUPERSEDED
    return EXPIRED if sealed and rows.table in ("chunks", "timelines") else ORPHAN


def find_superseded(listing: Iterable[ListedRows], references: References) -> dict[ListedRows, str]:
    """The rows of a listing that go, with the reason."""
    reasons = {rows: deletion_reason(rows, references) for rows in listing}
    return {rows: reason for rows, reason in reasons.items() if reason is not None}


def named_by_day(day: int, value: Manifest) -> set[Place]:
    """Every generation that a day's manifest names: of hour shards with their history, and of packs of hours."""
    named = {
        (shard, hour, generation.number)
        for (shard, hour), entry in value.entries.items()
        for state in states_of(entry)
        for generation in state.generations
    }
    return named | {(shard, day * DAY_HOURS, pack.generation.number) for shard, pack in value.hours.items()}


def named_by_month(month: int, value: Month) -> set[Place]:
    """Every generation of daily rows that a month names."""
    first = first_day_of(month) * DAY_HOURS
    return {(shard, first, pack.generation.number) for shard, pack in value.days.items()}


def states_of(entry: Entry) -> list[State]:
    """The state in force of an hour shard, and its former states."""
    return [entry.state, *(former.state for former in entry.history)]


def cut_history(now: Manifest, keep: int, nonce: int) -> Manifest:
    """The manifest with only ``keep`` former states of each hour shard, and a new fence."""
    entries = {
        key: msgspec.structs.replace(entry, history=entry.history[len(entry.history) - keep :] if keep else ())
        if len(entry.history) > keep
        else entry
        for key, entry in now.entries.items()
    }
    return msgspec.structs.replace(now, nonce=nonce, fence=nonce, entries=entries)
