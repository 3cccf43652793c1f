"""Which retractions count for an answer made of hours and days.

Samples tell while they are read: ``Scan`` notes what its lens hides. Stored hours name the retractions they left out,
and days were made of these. Of slots whose samples are gone that is the truth, whatever was retracted or undone since.
Whether a series had anything of what was left out they do not say, unless a retraction is about all of an hour. Hours
of which nothing is left have no row, so that all slots asked for are looked at. Enter by ``note``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np

from spm.fast_dataclass import dataclass
from spm.limits import DAY_SLOTS, HOUR_MS
from spm.query.rolled.resolutions import Levels
from spm.query.view.view import Scan
from spm.store.manifest import EXPIRED, Entry, Manifest, first_day_of
from spm.store.versions import retractions
from spm.store.versions.generations import Inputs, Unit
from spm.store.versions.retractions import Retraction
from spm.store.versions.visibility import among
from spm.wire import I64


def note(levels: Levels, slots: I64) -> None:
    """Tell the ground of a read about the whole slots that were asked for (ascending), once they have been read."""
    scan, looking = levels.scan, _Looking(levels)
    if not scan.known or not len(levels.chosen) or not len(slots):
        return
    ends, asked = (int(slots[0]), int(slots[-1])), set(slots.tolist())
    if scan.lens.retractions:
        for slot, _ in scan.units(*ends):
            if slot in asked and scan.ground.aggregated(slot):
                looking.at_open(slot)
    for slot in scan.sealed(*ends) if scan.lens.asof_ms is None else ():
        if slot in asked and scan.ground.aggregated(slot):
            scan.tick()
            looking.at_sealed(slot, scan.manifests[slot // DAY_SLOTS])


def note_unread(scan: Scan, slot: int, buckets: Sequence[int]) -> None:
    """Tell the ground about units of which nothing is read: any retraction that touches them may be in effect."""
    found = [r for r in scan.lens.retractions if r.number not in scan.ground.perhaps]
    for bucket in buckets if found else ():
        touching = retractions.touching(found, scan.entry(bucket, slot), slot)
        scan.ground.perhaps.update(r.number for r in touching)
        for piece in scan.tail.pieces(bucket, slot):
            ms, sources = piece.messages.ms, piece.messages.sources
            ends = (int(ms.min()), int(ms.max())) if len(ms) else (0, -1)
            scan.ground.perhaps.update(r.number for r in found if r.touches(slot, *ends, sources))


@dataclass(frozen=True, slots=True)
class _Looking:
    """Looks at one slot after the other."""

    levels: Levels
    _concerned: dict[int, bool] = field(default_factory=dict)  # retraction -> whether it is about a series asked for
    _holding: dict[tuple[int, int], bool] = field(default_factory=dict)  # bucket, day

    def at_open(self, slot: int) -> None:
        """Hours of an open slot are used where they leave out what is in force."""
        scan = self.levels.scan
        for bucket in self.levels.asked.by_bucket:
            entry = scan.entry(bucket, slot)
            for found in retractions.touching(scan.lens.retractions, entry, slot):
                if self._concerns(found):
                    self._left_out(found, entry, slot)

    def at_sealed(self, slot: int, day: Manifest) -> None:
        """Hours whose samples are gone leave out what they did when these went."""
        scan, ground = self.levels.scan, self.levels.scan.ground
        for bucket, pack in day.hours.items():
            made, entry = pack.slots.get(slot), day.entry(bucket, slot)
            if made is None:
                continue
            stored = retractions.numbers(made.retractions)
            left_out = [scan.known[n] for n in stored if n in scan.known and self._concerns(scan.known[n])]
            late = [r for r in scan.lens.retractions if r.number not in stored and self._is_late(r, entry, slot)]
            if not (left_out or late) or not self._holds(bucket, slot, day):
                continue
            for found in left_out:
                self._left_out(found, entry, slot)
            ground.lasting.update(r.number for r in left_out if r.end_ms)
            ground.too_late.update(r.number for r in late)

    def _left_out(self, found: Retraction, entry: Entry, slot: int) -> None:
        """One about all of a unit left out whatever there was; of others nobody knows whether there was any of it."""
        whole = (
            found.write_from_ms <= entry.stamp_min_ms
            and entry.stamp_max_ms <= found.write_to_ms
            and found.data_from_ms <= slot * HOUR_MS
            and (slot + 1) * HOUR_MS <= found.data_to_ms
            and (not found.source or entry.sources == (found.source,))
        )
        ground = self.levels.scan.ground
        (ground.retractions if whole else ground.perhaps).add(found.number)

    def _is_late(self, found: Retraction, entry: Entry, slot: int) -> bool:
        """Whether it would hide something, had it come in time. Expired days do not know their sources any more."""
        if found.number in self.levels.scan.ground.too_late:
            return False
        sources = entry.sources or (found.source,)
        return found.touches(slot, entry.stamp_min_ms, entry.stamp_max_ms, sources) and self._concerns(found)

    def _concerns(self, found: Retraction) -> bool:
        """Whether its matchers select any of the series asked for."""
        if not found.matchers:
            return True
        if found.number not in self._concerned:
            chosen = self.levels.chosen
            selected = among(chosen.series, chosen.metrics, *self.levels.scan.lens.series_of(found))
            self._concerned[found.number] = bool(selected.any())
        return self._concerned[found.number]

    def _holds(self, bucket: int, slot: int, day: Manifest) -> bool:
        """Whether a metric asked for lies in a bucket, or lay there when its samples went; perhaps, if none can tell.

        Of a metric that is left out altogether the rows of its hours say nothing: its place says it.
        """
        if bucket in self.levels.asked.by_bucket:
            return True
        number, scan = slot // DAY_SLOTS, self.levels.scan
        if (bucket, number) not in self._holding:
            generation, first = day.hours[bucket].generation, number
            if day.seal(slot) == EXPIRED:
                month, in_force = scan.months.of(number)
                if bucket in in_force.days:
                    generation, first = in_force.days[bucket].generation, first_day_of(month)
            made = scan.directory(Unit(bucket, scan.app, first * DAY_SLOTS), generation)
            metrics = np.unique(self.levels.chosen.metrics).tolist()
            self._holding[bucket, number] = not isinstance(made, Inputs) or any(m in made.pages for m in metrics)
        return self._holding[bucket, number]
