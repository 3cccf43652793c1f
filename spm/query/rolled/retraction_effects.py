"""Notes which retractions take effect in an answer made of hour and day aggregates.

Where samples are read, ``View`` notes the retractions that hide any of them. A stored hour names the retractions that
it leaves out, and days are made of such hours. An hour whose samples have expired leaves out the same ones for good,
whatever is retracted or undone later. Stored hours do not tell whether a retraction hid any sample of a series, unless
it covers the whole hour. An hour whose samples are all retracted has no row, so all requested hours are examined. Enter
by ``note_effects``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np

from spm.arrays import I64
from spm.fast_dataclass import dataclass
from spm.limits import DAY_HOURS, HOUR_MS
from spm.query.rolled.resolutions import RollupReader
from spm.query.view.view import View
from spm.store.manifest import EXPIRED, Entry, Manifest, first_day_of
from spm.store.versions import retractions
from spm.store.versions.generations import HourShard, Inputs
from spm.store.versions.retractions import Retraction
from spm.store.versions.visibility import contains_pairs


def note_effects(rollups: RollupReader, hours: I64) -> None:
    """Note in the provenance of a read which retractions take effect in its whole hours (ascending), after the read."""
    view, examiner = rollups.view, _HourExaminer(rollups)
    if not view.retractions or not len(rollups.selection) or not len(hours):
        return
    ends, requested = (int(hours[0]), int(hours[-1])), set(hours.tolist())
    if view.visibility.retractions:
        for hour, _ in view.stored_hours(*ends):
            if hour in requested and view.provenance.may_be_aggregated(hour):
                examiner.examine_open(hour)
    for hour in () if view.visibility.is_past else view.sealed_hours(*ends):
        if hour in requested and view.provenance.may_be_aggregated(hour):
            view.check_deadline()
            examiner.examine_sealed(hour, view.manifests[hour // DAY_HOURS])


def note_possible_effects(view: View, hour: int, shards: Sequence[int]) -> None:
    """Note, for hour-shards that are not read, the retractions that touch them: these may take effect."""
    new = [r for r in view.visibility.retractions if r.number not in view.provenance.possible_retractions]
    for shard in shards if new else ():
        touching = retractions.touching(new, view.entry(shard, hour), hour)
        view.provenance.possible_retractions.update(r.number for r in touching)
        for piece in view.tail.pieces(shard, hour):
            ms, sources = piece.messages.ms, piece.messages.sources
            ends = (int(ms.min()), int(ms.max())) if len(ms) else (0, -1)
            view.provenance.possible_retractions.update(r.number for r in new if r.touches(hour, *ends, sources))


@dataclass(frozen=True, slots=True)
class _HourExaminer:
    """Examines whole hours of one read, and notes in its provenance which retractions take effect."""

    rollups: RollupReader
    _concerns_series: dict[int, bool] = field(default_factory=dict)  # retraction -> whether it selects requested series
    _has_metric: dict[tuple[int, int], bool] = field(default_factory=dict)  # shard, day

    def examine_open(self, hour: int) -> None:
        """Note the retractions that an open hour leaves out: those in force, else its aggregates would not be used."""
        view = self.rollups.view
        for shard in self.rollups.plan.by_shard:
            entry = view.entry(shard, hour)
            for retraction in retractions.touching(view.visibility.retractions, entry, hour):
                if self._concerns(retraction):
                    self._note_left_out(retraction, entry, hour)

    def examine_sealed(self, hour: int, day: Manifest) -> None:
        """Note the retractions that an hour left out when its samples expired, and those that came too late for it."""
        view, provenance = self.rollups.view, self.rollups.view.provenance
        for shard, pack in day.hours.items():
            inputs, entry = pack.hours.get(hour), day.entry(shard, hour)
            if inputs is None:
                continue
            stored = retractions.numbers(inputs.retractions)
            retractions_of_hour = [view.retractions[number] for number in stored if number in view.retractions]
            left_out = [retraction for retraction in retractions_of_hour if self._concerns(retraction)]
            ineffective = [
                r for r in view.visibility.retractions if r.number not in stored and self._came_too_late(r, entry, hour)
            ]
            if not (left_out or ineffective) or not self._may_hold_metric(shard, hour, day):
                continue
            for retraction in left_out:
                self._note_left_out(retraction, entry, hour)
            provenance.lasting_retractions.update(r.number for r in left_out if r.end_ms)
            provenance.ineffective_retractions.update(r.number for r in ineffective)

    def _note_left_out(self, retraction: Retraction, entry: Entry, hour: int) -> None:
        """Note a retraction: in effect if it covers the whole hour-shard, else possible: it may have hidden nothing."""
        covers_all = (
            retraction.write_from_ms <= entry.stamp_min_ms
            and entry.stamp_max_ms <= retraction.write_to_ms
            and retraction.data_from_ms <= hour * HOUR_MS
            and (hour + 1) * HOUR_MS <= retraction.data_to_ms
            and (not retraction.source or entry.sources == (retraction.source,))
        )
        provenance = self.rollups.view.provenance
        (provenance.retractions if covers_all else provenance.possible_retractions).add(retraction.number)

    def _came_too_late(self, retraction: Retraction, entry: Entry, hour: int) -> bool:
        """Whether a retraction would hide something if samples were stored. Expired days no longer name their sources.

        It is false for a retraction that is already noted as ineffective.
        """
        if retraction.number in self.rollups.view.provenance.ineffective_retractions:
            return False
        touches = retraction.touches(hour, entry.stamp_min_ms, entry.stamp_max_ms, entry.sources)
        return touches and self._concerns(retraction)

    def _concerns(self, retraction: Retraction) -> bool:
        """Whether a retraction's matchers select any of the requested series."""
        if not retraction.matchers:
            return True
        if retraction.number not in self._concerns_series:
            selection = self.rollups.selection
            pairs = self.rollups.view.visibility.series_of(retraction)
            selected = contains_pairs(selection.series, selection.metrics, *pairs)
            self._concerns_series[retraction.number] = bool(selected.any())
        return self._concerns_series[retraction.number]

    def _may_hold_metric(self, shard: int, hour: int, day: Manifest) -> bool:
        """Whether a requested metric lies in a shard, or lay there when its samples expired; true if unknown.

        A metric whose samples are all left out has no row in an hour; the directory of the generation names it.
        """
        if shard in self.rollups.plan.by_shard:
            return True
        number, view = hour // DAY_HOURS, self.rollups.view
        if (shard, number) not in self._has_metric:
            generation, first = day.hours[shard].generation, number
            if day.seal(hour) == EXPIRED:
                month, month_manifest = view.months.of(number)
                if shard in month_manifest.days:
                    generation, first = month_manifest.days[shard].generation, first_day_of(month)
            inputs = view.directory(HourShard(shard, view.app, first * DAY_HOURS), generation)
            metrics = np.unique(self.rollups.selection.metrics).tolist()
            self._has_metric[shard, number] = not isinstance(inputs, Inputs) or any(m in inputs.pages for m in metrics)
        return self._has_metric[shard, number]
