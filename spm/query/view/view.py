"""One read's consistent view of an app: all samples of answers are read through it (PROTOCOL 9, 10, 11, 22, 23).

A view is made in this order: retractions, the placement table and pending records first, then manifests, then rows by
exact key. When an expected row is missing, the view looks whether the manifest has changed (``OutdatedView``: the query
starts again); else this is an ``IntegrityError``. An hour-shard is all its generations, the blocks of its replay list
and its pending blocks, merged; its visibility then says which versions may be seen. While the placement is not settled,
the hour-shards of an hour are merged across shards before winners are chosen.

``ReadRequest`` says what a query asks of the store; ``ReadPlan``, which series it reads in which shard. Enter by
``View.plan``, ``View.stored_hours`` and ``View.winners``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from spm import limits
from spm.arrays import BOOL, U64
from spm.errors import CorruptBlock, IntegrityError
from spm.fast_dataclass import dataclass
from spm.limits import DAY_HOURS, HOUR_MS
from spm.query.request.batches import DeadlineCheck, no_deadline
from spm.query.request.provenance import RAW, ProvenanceBuilder
from spm.query.samples.gather import GATHERED_SERIES_MAX, Gathered, gather, layout_of
from spm.query.series.index import SeriesByMetric
from spm.query.view.decoded_rows import DecodedRows, MonthManifests
from spm.query.view.tail import TailView
from spm.store import epochs, keys, manifest
from spm.store.backends.base import Reader
from spm.store.keys import PlacementTable
from spm.store.manifest import SEALED, Entry, Generation, Manifest
from spm.store.matchers import METRIC_NAME, Matcher
from spm.store.versions import generations
from spm.store.versions.generations import HourShard, Inputs, PageRequest
from spm.store.versions.knowledge import Knowledge
from spm.store.versions.merge import Piece, Winners, merge, pick, requested
from spm.store.versions.retractions import Retraction
from spm.store.versions.visibility import Visibility


class OutdatedView(Exception):
    """A row that this view names no longer exists, because a run has published since: make a new view."""


class ReadRequest:
    """One read: samples with start_ms < ts <= end_ms, of one metric or (``metric`` is ``None``) of any."""

    def __init__(
        self,
        start_ms: int,
        end_ms: int,
        matchers: Sequence[Matcher] = (),
        asof_ms: int | None = None,
        check_deadline: DeadlineCheck = no_deadline,
        sees_retracted: bool = False,
        knowledge: Knowledge | None = None,
        draft: Retraction | None = None,
        in_memory: bool = False,
    ) -> None:
        """``sees_retracted``: retractions hide nothing from this read, except what is erased.

        ``draft``: a retraction that is not made yet, and hides what it would hide. ``in_memory``: nothing is read from
        the store, nothing is decoded, and nothing is waited for.
        """
        self.start_ms, self.end_ms, self.asof_ms, self.check_deadline = start_ms, end_ms, asof_ms, check_deadline
        self.sees_retracted, self.knowledge, self.draft, self.in_memory = sees_retracted, knowledge, draft, in_memory
        self.names_all_series = False  # whether it is about series of any time
        self.metric = next((m.value for m in matchers if m.name == METRIC_NAME and m.op == "="), None)

    def hours(self) -> tuple[int, int] | None:
        """Its first hour and the one after its last; ``None`` for an empty time range."""
        first = max(int(self.start_ms) // HOUR_MS, 0)
        end = min(-(-int(self.end_ms) // HOUR_MS), limits.TIME_MAX_MS // HOUR_MS)
        return (first, end) if first < end else None

    def days_in_hours(self) -> tuple[int, int] | None:
        """The hours of all days that it touches: rows of days are exact only if none of their hours changed."""
        hours = self.hours()
        return None if hours is None else (hours[0] // DAY_HOURS * DAY_HOURS, -(-hours[1] // DAY_HOURS) * DAY_HOURS)

    def overlaps(self, retraction: Retraction) -> bool:
        """Whether a retraction is about any time within the time range."""
        return retraction.data_from_ms < self.end_ms and self.start_ms < retraction.data_to_ms

    def is_affected_by(self, retraction: Retraction) -> bool:
        """Whether a retraction may hide anything requested."""
        if not self.overlaps(retraction):
            return False
        return self.metric is None or retraction.metric is None or self.metric == retraction.metric

    def is_retracted_by(self, retraction: Retraction) -> bool:
        """Whether a retraction is in force for this read. What is erased is hidden from every read."""
        if self.knowledge is not None:
            return self.overlaps(retraction) and self.knowledge.in_force(retraction)
        is_seen = retraction.active(self.asof_ms) and not self.sees_retracted
        return (is_seen or retraction.erased_ms > 0) and self.overlaps(retraction)

    def erased(self, retractions: Sequence[Retraction]) -> frozenset[int]:
        """Numbers of retractions made after the as-of time whose samples are deleted and missing from the answer."""
        if self.asof_ms is None:
            return frozenset()
        return frozenset(
            r.number
            for r in retractions
            if r.erased_ms and r.start_ms > self.asof_ms >= r.write_from_ms and self.is_affected_by(r)
        )


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The series that a query reads: all of them, and those of each shard in which their metric may lie."""

    everything: PageRequest
    by_shard: Mapping[int, PageRequest]
    disjoint: bool  # no metric lies in two shards

    @classmethod
    def of(cls, placement: PlacementTable, app: int, by_metric: SeriesByMetric) -> "ReadPlan":
        """Plan a read: each metric is read from the shards in which it may lie, one only if a single epoch is live."""
        everything = PageRequest({metric: by_metric.ids[a:b] for metric, (a, b) in by_metric.spans.items()})
        settled, shards = placement.has_one_live_epoch, placement.all_shards(app)
        if settled and len(shards) == 1:
            return cls(everything, dict.fromkeys(shards, everything), settled)
        metrics = np.fromiter(everything.series, np.uint64, len(everything.series))
        shard_of = placement.place(app, metrics)
        by_shard: dict[int, PageRequest] = {}
        for shard in shards:
            inside = shard_of == shard if settled else _may_lie_in(placement, app, shard, metrics)
            if inside.any():
                own = metrics if inside.all() else metrics[inside]
                by_shard[shard] = PageRequest({metric: everything.series[metric] for metric in own.tolist()})
        return cls(everything, by_shard, settled)

    def in_shard(self, shard: int) -> PageRequest | None:
        """The series to read in a shard; ``None`` if there are none."""
        return self.by_shard.get(shard)


@dataclass(frozen=True, slots=True)
class View:
    """One query's view of an app: its tail, then its manifests."""

    app: int
    reader: Reader
    tail: TailView
    manifests: Mapping[int, Manifest]
    months: MonthManifests
    rows: DecodedRows
    visibility: Visibility
    in_force: tuple[Retraction, ...]  # all retractions in force; ``visibility`` has those that may affect this query
    retractions: Mapping[int, Retraction]  # all of the app, by number
    placement: PlacementTable
    provenance: ProvenanceBuilder
    span_ms: tuple[int, int]  # the query asks for samples with first < ts <= second
    check_deadline: Callable[[], None]
    in_memory: bool = False  # nothing may be read, decoded or waited for

    def plan(self, by_metric: SeriesByMetric) -> ReadPlan:
        """Plan the read of these series, and note its shards in the provenance."""
        plan = by_metric.plans.get(self.placement)
        if not isinstance(plan, ReadPlan):
            plan = ReadPlan.of(self.placement, self.app, by_metric)
            by_metric.plans.clear()
            by_metric.plans[self.placement] = plan  # a process keeps small selections
        self.provenance.shards.update(plan.by_shard)
        return plan

    # --- what the manifests and the tail say

    def stored_hours(self, first_hour: int, last_hour: int, *, sealed: bool = False) -> Iterator[tuple[int, list[int]]]:
        """(hour, shards that hold samples of it) between two hours, ascending.

        Hours whose samples have expired are left out unless ``sealed``.
        """
        shards_of: dict[int, set[int]] = {}
        for shard, hour in self.tail.hour_shards():
            if first_hour <= hour <= last_hour:
                shards_of.setdefault(hour, set()).add(shard)
        for day in self._days(first_hour, last_hour):
            for (shard, hour), entry in day.entries.items():
                if first_hour <= hour <= last_hour and (entry.state.generations or entry.state.replay):
                    shards_of.setdefault(hour, set()).add(shard)
        for hour in sorted(shards_of):
            if sealed or self.seal(hour) < SEALED:
                yield hour, sorted(shards_of[hour])

    def sealed_hours(self, first_hour: int, last_hour: int) -> dict[int, int]:
        """Hour -> its seal, for the hours between two hours whose samples have expired."""
        return {
            hour: seal
            for day in self._days(first_hour, last_hour)
            for hour, seal in day.seals.items()
            if seal >= SEALED and first_hour <= hour <= last_hour
        }

    def _days(self, first_hour: int, last_hour: int) -> Iterator[Manifest]:
        days = range(first_hour // DAY_HOURS, last_hour // DAY_HOURS + 1)
        if len(days) > len(self.manifests):  # a query may ask for a thousand years
            return (value for day, value in self.manifests.items() if day in days)
        return (self.manifests[day] for day in days if day in self.manifests)

    def seal(self, hour: int) -> int:
        """The seal of an hour."""
        day = self.manifests.get(hour // DAY_HOURS)
        return day.seal(hour) if day else manifest.OPEN

    def entry(self, shard: int, hour: int) -> Entry:
        """The manifest's entry of an hour-shard."""
        day = self.manifests.get(hour // DAY_HOURS)
        return day.entry(shard, hour) if day else Entry()

    # --- samples

    def winners(self, hour: int, shards: Sequence[int], plan: ReadPlan) -> list[Winners]:
        """The winners of one hour, in one or more parts with disjoint series.

        When metrics may lie in several shards, versions are merged across them before winners are chosen.
        """
        self.check_deadline()
        requests = [(shard, plan.in_shard(shard)) for shard in shards]
        versions = [self.versions(shard, hour, request) for shard, request in requests if request is not None]
        if any(pieces for pieces, _ in versions):
            self.provenance.use(RAW, hour)
        if not plan.disjoint and len(versions) > 1:
            return self._pick([piece for pieces, _ in versions for piece in pieces], is_merged=False)
        return [part for pieces, is_merged in versions for part in self._pick(pieces, is_merged=is_merged)]

    def fetch(self, table: str, row_keys: Sequence[bytes]) -> list[object | None]:
        """Decoded rows, as ``DecodedRows.fetch`` gives them."""
        return self.rows.fetch(self.reader, table, row_keys)

    def _pick(self, pieces: list[Piece], *, is_merged: bool) -> list[Winners]:
        merged = pieces if is_merged or not pieces else [merge(pieces)]
        return [pick(piece, self._visible(piece)) for piece in merged]

    def _visible(self, piece: Piece) -> BOOL | None:
        """bool[N]: the visible rows of a piece (``None``: all); notes which retractions hide any requested sample."""
        visible = self.visibility.visible_rows(piece)
        if visible is None:
            return None
        requested = (piece.ts > self.span_ms[0]) & (piece.ts <= self.span_ms[1])
        for retraction in self.visibility.retractions:
            if retraction.number not in self.provenance.retractions:
                remaining = Visibility((retraction,), self.visibility.series_of).visible_rows(piece)
                if remaining is not None and (requested & ~remaining).any():
                    self.provenance.retractions.add(retraction.number)
        return visible

    def versions(self, shard: int, hour: int, request: PageRequest) -> tuple[list[Piece], bool]:
        """All versions of one hour-shard, and whether the pieces are merged: then they have no series in common."""
        entry = self.entry(shard, hour)
        merged, replayed = self._stored(shard, hour, entry, request)
        blocks = replayed + self.tail.pieces(shard, hour)
        unmerged = [piece for piece in requested(blocks, request.series) if len(piece)] if blocks else []
        is_one_generation = not unmerged and len(entry.state.generations) <= 1
        is_one_piece = not merged and len(unmerged) == 1
        return merged + unmerged, is_one_generation or is_one_piece

    def _stored(self, shard: int, hour: int, entry: Entry, request: PageRequest) -> tuple[list[Piece], list[Piece]]:
        """(the requested versions of an hour-shard's generations, all those of its replay list), in merged pieces."""
        hour_shard, pieces = HourShard(shard, self.app, hour), list[Piece]()
        self._check_tail(hour_shard, entry)
        try:
            for generation in entry.state.generations:
                pieces += self._generation(hour_shard, generation, request)
        except IntegrityError:
            self.raise_if_outdated(hour)
            raise
        return pieces, self._replayed(hour_shard, entry)

    def gathered(
        self, shard: int, hour: int, plan: ReadPlan, selected: SeriesByMetric, span_ms: tuple[int, int]
    ) -> Gathered | None:
        """The winners of a few series in an hour-shard, within a time range; ``None`` where ``winners`` must choose."""
        visibility, request = self.visibility, plan.in_shard(shard)
        if len(selected.ids) > GATHERED_SERIES_MAX or visibility.retractions or visibility.is_past or request is None:
            return None
        if len(request.series) < len(selected.spans):  # the shard may hold stale copies of the other metrics
            return None
        self.check_deadline()
        merged, replayed = self._stored(shard, hour, self.entry(shard, hour), request)
        layouts = [*map(layout_of, merged), *map(layout_of, replayed), *self.tail.layouts(shard, hour)]
        samples = gather(layouts, selected, *span_ms)
        if samples is not None and samples.has_series:
            self.provenance.use(RAW, hour)
        return samples

    def _generation(self, hour_shard: HourShard, generation: Generation, request: PageRequest) -> list[Piece]:
        return generations.read_generation(
            self.fetch, lambda: self.directory(hour_shard, generation), hour_shard, generation, request
        )

    def directory(self, hour_shard: HourShard, generation: Generation) -> Inputs | CorruptBlock | None:
        """The `inputs` row of a generation, which lists what it wrote; ``None`` if absent.

        A generation of hours or days is named by the first hour of its day or month.
        """
        [row] = self.rows.fetch(self.reader, "inputs", [generations.inputs_key(hour_shard, generation)])
        return row if isinstance(row, Inputs | CorruptBlock) else None

    def _replayed(self, hour_shard: HourShard, entry: Entry) -> list[Piece]:
        """The blocks of an hour-shard's replay list, merged; raises ``IntegrityError`` if one is missing."""
        if not entry.state.replay:
            return []
        log_keys = [
            keys.LogKey(hour_shard.shard, hour_shard.app, hour_shard.hour, replay.ingest_ms, replay.batch)
            for replay in entry.state.replay
        ]
        blocks = self.rows.log(self.reader, [key.to_bytes() for key in log_keys])
        if any(block is None for block in blocks):
            self.raise_if_outdated(hour_shard.hour)
            raise IntegrityError(f"a block of the replay list of {hour_shard} is missing")
        return [merge([block for block in blocks if block is not None])]

    def _check_tail(self, hour_shard: HourShard, entry: Entry) -> None:
        """Check that blocks which no longer existed when the tail was read are in a generation in force."""
        missing = set(self.tail.missing.get((hour_shard.shard, hour_shard.hour), ()))
        if not missing:
            return
        directories = [self.directory(hour_shard, generation) for generation in entry.state.generations]
        missing -= {replay.batch for inputs in directories if isinstance(inputs, Inputs) for replay in inputs.batches}
        if missing:
            self.raise_if_outdated(hour_shard.hour)
            raise IntegrityError(
                f"{len(missing)} block(s) of {hour_shard} are missing, one of batch {min(missing):016x}"
            )

    def raise_if_outdated(self, hour: int) -> None:
        """Raise ``OutdatedView`` if the day's manifest is no longer the one this view was made from."""
        day = hour // DAY_HOURS
        present = self.rows.manifests(self.reader, [day]).get(day, Manifest())
        if present.nonce != self.manifests.get(day, Manifest()).nonce:
            raise OutdatedView(f"manifest of day {day}")


def _may_lie_in(placement: PlacementTable, app: int, shard: int, metrics: U64) -> BOOL:
    """bool[S]: the metrics that may lie in a shard."""
    closed = epochs.in_closed_epoch_only(placement, app, shard, metrics)
    return np.ones(len(metrics), np.bool_) if closed is None else ~closed
