"""What the samples of a stretch of time rest on at one moment, slot by slot: equal marks mean equal samples.

A slot's mark is the state of its units in force: rows under these generations and replay lists are written once. A slot
that has un-compacted samples, or whose samples have expired, has no mark: it is not settled. Everything else that
decides about samples (retractions, the distribution, rows set aside) is in common to all slots. Enter by ``Standing``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spm.query.view.tail import TailView
from spm.store.manifest import SEALED, Manifest, State

Common = tuple[object, ...]
Mark = tuple[tuple[int, State], ...]  # by bucket


@dataclass(frozen=True, slots=True)
class Standing:
    """See the module."""

    common: Common
    marks: Mapping[int, Mark]  # slots that hold anything, and are settled
    unsettled: frozenset[int]
    nonces: Mapping[int, int]  # by day: a manifest that was changed and changed back has another

    @classmethod
    def of(cls, common: Common, manifests: Mapping[int, Manifest], tail: TailView) -> Standing:
        """Of one consistent view."""
        marks: dict[int, list[tuple[int, State]]] = {}
        unsettled = {slot for _, slot in (*tail.units(), *tail.missing)}
        for day in manifests.values():
            unsettled |= {slot for slot, state in day.seals.items() if state >= SEALED}
            for (bucket, slot), entry in day.entries.items():
                if entry.state.generations or entry.state.replay:
                    marks.setdefault(slot, []).append((bucket, entry.state))
        settled = {slot: tuple(sorted(held, key=_bucket)) for slot, held in marks.items() if slot not in unsettled}
        return cls(common, settled, frozenset(unsettled), {day: found.nonce for day, found in manifests.items()})

    def holds(self, slot: int, other: Standing) -> bool:
        """Whether a slot's samples are settled, and the same in another standing."""
        return (
            slot not in self.unsettled
            and slot not in other.unsettled
            and self.marks.get(slot, ()) == other.marks.get(slot, ())
        )

    def stood(self, day: int, other: Standing) -> bool:
        """Whether nothing has become of a day between this and another standing."""
        return self.nonces.get(day) == other.nonces.get(day)

    def within(self, first_slot: int, last_slot: int) -> Standing:
        """Of these slots alone, to be kept."""
        kept = {slot: mark for slot, mark in self.marks.items() if first_slot <= slot <= last_slot}
        return Standing(self.common, kept, frozenset(), {})


def _bucket(held: tuple[int, State]) -> int:
    return held[0]
