"""What the samples of a stretch of time rest on at one moment, hour by hour: equal marks mean equal samples.

An hour's mark is the state of its units in force: rows under these generations and replay lists are written once. An
hour that has un-compacted samples, or whose samples have expired, has no mark: it is not settled. Everything else that
decides about samples (retractions, the distribution, rows set aside) is in common to all hours. Enter by ``Standing``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spm.query.view.tail import TailView
from spm.store.manifest import SEALED, Manifest, State

Common = tuple[object, ...]
Mark = tuple[tuple[int, State], ...]  # by shard


@dataclass(frozen=True, slots=True)
class Standing:
    """See the module."""

    common: Common
    marks: Mapping[int, Mark]  # hours that hold anything, and are settled
    unsettled: frozenset[int]
    nonces: Mapping[int, int]  # by day: a manifest that was changed and changed back has another

    @classmethod
    def of(cls, common: Common, manifests: Mapping[int, Manifest], tail: TailView) -> Standing:
        """Of one consistent view."""
        marks: dict[int, list[tuple[int, State]]] = {}
        unsettled = {hour for _, hour in (*tail.units(), *tail.missing)}
        for day in manifests.values():
            unsettled |= {hour for hour, state in day.seals.items() if state >= SEALED}
            for (shard, hour), entry in day.entries.items():
                if entry.state.generations or entry.state.replay:
                    marks.setdefault(hour, []).append((shard, entry.state))
        settled = {hour: tuple(sorted(held, key=_shard)) for hour, held in marks.items() if hour not in unsettled}
        return cls(common, settled, frozenset(unsettled), {day: found.nonce for day, found in manifests.items()})

    def holds(self, hour: int, other: Standing) -> bool:
        """Whether an hour's samples are settled, and the same in another standing."""
        return (
            hour not in self.unsettled
            and hour not in other.unsettled
            and self.marks.get(hour, ()) == other.marks.get(hour, ())
        )

    def stood(self, day: int, other: Standing) -> bool:
        """Whether nothing has become of a day between this and another standing."""
        return self.nonces.get(day) == other.nonces.get(day)

    def within(self, first_hour: int, last_hour: int) -> Standing:
        """Of these hours alone, to be kept."""
        kept = {hour: mark for hour, mark in self.marks.items() if first_hour <= hour <= last_hour}
        return Standing(self.common, kept, frozenset(), {})


def _shard(held: tuple[int, State]) -> int:
    return held[0]
