"""Which retractions count for an answer made of hours and days.

Samples tell while they are read: ``Scan`` notes what its lens hides. Stored hours name the retractions they left out,
and days were made of these. Of hours whose samples are gone that is the truth, whatever was retracted or undone since.
Whether a series had anything of what was left out they do not say, unless a retraction is about all of an hour. Hours
of which nothing is left have no row, so that all hours asked for are looked at. Enter by ``note``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np

from spm.arrays import I64
from spm.fast_dataclass import dataclass
from spm.limits import DAY_HOURS, HOUR_MS
from spm.query.rolled.resolutions import Levels
from spm.query.view.view import Scan
from spm.store.manifest import EXPIRED, Entry, Manifest, first_day_of
from spm.store.versions import retractions
from spm.store.versions.generations import HourShardData, Inputs
from spm.store.versions.retractions import Retraction
from spm.store.versions.visibility import among


def note(levels: Levels, hours: I64) -> None:
    """Tell the ground of a read about the whole hours that were asked for (ascending), once they have been read."""
    scan, looking = levels.scan, _Looking(levels)
    if not scan.known or not len(levels.chosen) or not len(hours):
        return
    ends, asked = (int(hours[0]), int(hours[-1])), set(hours.tolist())
    if scan.lens.retractions:
        for hour, _ in scan.units(*ends):
            if hour in asked and scan.ground.aggregated(hour):
                looking.at_open(hour)
    for hour in scan.sealed(*ends) if scan.lens.asof_ms is None else ():
        if hour in asked and scan.ground.aggregated(hour):
            scan.tick()
            looking.at_sealed(hour, scan.manifests[hour // DAY_HOURS])


def note_unread(scan: Scan, hour: int, shards: Sequence[int]) -> None:
    """Tell the ground about units of which nothing is read: any retraction that touches them may be in effect."""
    found = [r for r in scan.lens.retractions if r.number not in scan.ground.perhaps]
    for shard in shards if found else ():
        touching = retractions.touching(found, scan.entry(shard, hour), hour)
        scan.ground.perhaps.update(r.number for r in touching)
        for piece in scan.tail.pieces(shard, hour):
            ms, sources = piece.messages.ms, piece.messages.sources
            ends = (int(ms.min()), int(ms.max())) if len(ms) else (0, -1)
            scan.ground.perhaps.update(r.number for r in found if r.touches(hour, *ends, sources))


@dataclass(frozen=True, slots=True)
class _Looking:
    """Looks at one hour after the other."""

    levels: Levels
    _concerned: dict[int, bool] = field(default_factory=dict)  # retraction -> whether it is about a series asked for
    _holding: dict[tuple[int, int], bool] = field(default_factory=dict)  # shard, day

    def at_open(self, hour: int) -> None:
        """Hours of an open hour are used where they leave out what is in force."""
        scan = self.levels.scan
        for shard in self.levels.asked.by_shard:
            entry = scan.entry(shard, hour)
            for found in retractions.touching(scan.lens.retractions, entry, hour):
                if self._concerns(found):
                    self._left_out(found, entry, hour)

    def at_sealed(self, hour: int, day: Manifest) -> None:
        """Hours whose samples are gone leave out what they did when these went."""
        scan, ground = self.levels.scan, self.levels.scan.ground
        for shard, pack in day.hours.items():
            made, entry = pack.hours.get(hour), day.entry(shard, hour)
            if made is None:
                continue
            stored = retractions.numbers(made.retractions)
            left_out = [scan.known[n] for n in stored if n in scan.known and self._concerns(scan.known[n])]
            late = [r for r in scan.lens.retractions if r.number not in stored and self._is_late(r, entry, hour)]
            if not (left_out or late) or not self._holds(shard, hour, day):
                continue
            for found in left_out:
                self._left_out(found, entry, hour)
            ground.lasting.update(r.number for r in left_out if r.end_ms)
            ground.too_late.update(r.number for r in late)

    def _left_out(self, found: Retraction, entry: Entry, hour: int) -> None:
        """One about all of a unit left out whatever there was; of others nobody knows whether there was any of it."""
        whole = (
            found.write_from_ms <= entry.stamp_min_ms
            and entry.stamp_max_ms <= found.write_to_ms
            and found.data_from_ms <= hour * HOUR_MS
            and (hour + 1) * HOUR_MS <= found.data_to_ms
            and (not found.source or entry.sources == (found.source,))
        )
        ground = self.levels.scan.ground
        (ground.retractions if whole else ground.perhaps).add(found.number)

    def _is_late(self, found: Retraction, entry: Entry, hour: int) -> bool:
        """Whether it would hide something, had it come in time. Expired days do not know their sources any more."""
        if found.number in self.levels.scan.ground.too_late:
            return False
        sources = entry.sources or (found.source,)
        return found.touches(hour, entry.stamp_min_ms, entry.stamp_max_ms, sources) and self._concerns(found)

    def _concerns(self, found: Retraction) -> bool:
        """Whether its matchers select any of the series asked for."""
        if not found.matchers:
            return True
        if found.number not in self._concerned:
            chosen = self.levels.chosen
            selected = among(chosen.series, chosen.metrics, *self.levels.scan.lens.series_of(found))
            self._concerned[found.number] = bool(selected.any())
        return self._concerned[found.number]

    def _holds(self, shard: int, hour: int, day: Manifest) -> bool:
        """Whether a metric asked for lies in a shard, or lay there when its samples went; perhaps, if none can tell.

        Of a metric that is left out altogether the rows of its hours say nothing: its place says it.
        """
        if shard in self.levels.asked.by_shard:
            return True
        number, scan = hour // DAY_HOURS, self.levels.scan
        if (shard, number) not in self._holding:
            generation, first = day.hours[shard].generation, number
            if day.seal(hour) == EXPIRED:
                month, in_force = scan.months.of(number)
                if shard in in_force.days:
                    generation, first = in_force.days[shard].generation, first_day_of(month)
            made = scan.directory(HourShardData(shard, scan.app, first * DAY_HOURS), generation)
            metrics = np.unique(self.levels.chosen.metrics).tolist()
            self._holding[shard, number] = not isinstance(made, Inputs) or any(m in made.pages for m in metrics)
        return self._holding[shard, number]
