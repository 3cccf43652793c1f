"""Refuses a retraction that is too broad; previews (counts samples, series, hours), makes and undoes one (PROTOCOL 17).

``Draft`` is a person's request, which ``validate_draft`` may refuse; ``preview`` counts what it would hide, exactly,
from the raw samples of the hour shards that it may touch; ``retract`` puts its row in force and says which hours stay
unchanged because they are sealed (PROTOCOL 23); ``undo`` ends it. No sample is moved or deleted here: readers leave
them out, and the next run rebuilds hours and days.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rollups.decide import plan
from rollups.manifest import cells
from rollups.run import survey
from spm import limits
from spm.arrays import BOOL, I64, U64
from spm.errors import CorruptBlock, IntegrityError, Refused
from spm.limits import DAY_HOURS, HOUR_MS
from spm.store import dictionary, epochs, keys
from spm.store.backends.base import Backend, Reader
from spm.store.encoding import kernels
from spm.store.encoding.blocks import TimelinesPage
from spm.store.encoding.chunk_page import ChunkPage
from spm.store.ledger import commit_records
from spm.store.manifest import OPEN, Entry, Generation, Manifest
from spm.store.matchers import Matcher, mask, matches_empty
from spm.store.versions import generations, retractions
from spm.store.versions import kernels as version_kernels
from spm.store.versions.generations import HourShard, PageRequest
from spm.store.versions.merge import Piece, merge, narrow
from spm.store.versions.retractions import Retraction
from spm.store.versions.visibility import Pairs, Visibility, contains_pairs
from spm.wire import parse_canonical

_FORMS = {"chunks": ChunkPage.from_bytes, "timelines": TimelinesPage.from_bytes}
_ALL = np.empty(0, np.bool_)
_NOTHING = np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True)
class Draft:
    """What to retract. Empty conditions do not narrow it; ``write_to_ms`` is by default all that is accepted."""

    source: str = ""
    matchers: tuple[Matcher, ...] = ()
    write_from_ms: int | None = None  # when it was accepted, both ends included
    write_to_ms: int | None = None
    data_from_ms: int | None = None  # the samples' own times: from < ts <= to
    data_to_ms: int | None = None
    reason: str = ""
    author: str = ""


@dataclass(frozen=True, slots=True)
class Preview:
    """What a draft would hide of the present answers."""

    samples: int = 0  # (series, time)s whose value would disappear or change
    restored: int = 0  # of these: how many show an older value again
    versions: int = 0  # stored versions that would be hidden
    series: int = 0
    hours: int = 0
    sources: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    first_ms: int | None = None
    last_ms: int | None = None
    sealed: int = 0  # hours in its range that are sealed or sealing: they stay as they are
    at_least: bool = False  # the counts are lower bounds: there is more, or damaged rows are in it


@dataclass(frozen=True, slots=True)
class RetractionResult:
    """A retraction after a change, and the sealed hours that it can not change any more."""

    retraction: Retraction
    sealed_hours: tuple[int, ...]


def validate_draft(draft: Draft, now_ms: int, *, newest_stamp_ms: int = 0) -> Retraction:
    """Turns the draft into a retraction without a number; raises ``Refused`` if it is too wide, reversed or long.

    ``newest_stamp_ms``: up to which the app has stamps; a clock that was ahead has given some above ``now_ms``.
    """
    _check_narrow(draft)
    write_to = max(now_ms, newest_stamp_ms) if draft.write_to_ms is None else draft.write_to_ms
    data_to = limits.TIME_MAX_MS if draft.data_to_ms is None else draft.data_to_ms
    retraction = Retraction(
        0,
        now_ms,
        0,
        draft.write_from_ms or 0,
        write_to,
        -1 if draft.data_from_ms is None else draft.data_from_ms,
        data_to,
        draft.source,
        draft.matchers,
        draft.reason.strip(),
        draft.author,
    )
    if retraction.write_from_ms > retraction.write_to_ms or retraction.data_from_ms >= retraction.data_to_ms:
        raise Refused("a range of this retraction ends before it begins", remedy="Swap its ends.")
    if len(retraction.reason) > limits.RETRACT_REASON_CHARS_MAX:
        raise Refused("the reason is too long", got=len(retraction.reason), wanted=limits.RETRACT_REASON_CHARS_MAX)
    if len(retraction.matchers) > limits.LABELS_MAX or len(retraction.source.encode()) > limits.SOURCE_BYTES_MAX:
        raise Refused("the conditions are longer than any series or source")
    for matcher in retraction.matchers:
        mask([""], matcher)  # a broken expression must fail now, not at every read
    return retraction


def _check_narrow(draft: Draft) -> None:
    """Raises ``Refused`` for a draft that would retract everything because its fields are empty."""
    named = draft.source or any(not matches_empty(m) for m in draft.matchers)
    bounded = draft.write_from_ms is not None or None not in (draft.data_from_ms, draft.data_to_ms)
    if not (named or bounded):
        raise Refused(
            "this would retract everything the app has",
            remedy="Name a source, a series, a time from which it was sent, or both ends of its times.",
        )


def preview(store: Backend, app: int, draft: Retraction) -> Preview:
    """Counts what would be hidden: exactly up to the limits ``RETRACT_PREVIEW_*``, above them with ``at_least`` set."""
    for _ in range(limits.RESTARTS_MAX):
        try:
            with store.snapshot() as reader:
                return _preview(reader, app, draft)
        except IntegrityError:
            continue  # a run or a purge changed rows, on a store without snapshots: count again
    with store.snapshot() as reader:
        return _preview(reader, app, draft)


def retract(store: Backend, app: int, draft: Retraction) -> RetractionResult:
    """Puts it in force: the next read leaves out what it hides. First the row, then the manifests (PROTOCOL 23)."""
    if not draft.reason:
        raise Refused("a retraction needs a reason", remedy="Say why, for people who read the chart next year.")
    retraction = retractions.add(store, app, draft)
    return RetractionResult(retraction, sealed_hours(store, app, retraction))


def undo(store: Backend, app: int, number: int, now_ms: int) -> RetractionResult:
    """Undoes one: what it hid counts again, also in charts of the past."""
    ended = retractions.end(store, app, number, now_ms)
    return RetractionResult(ended, sealed_hours(store, app, ended))


def sealed_hours(reader: Reader, app: int, retraction: Retraction) -> tuple[int, ...]:
    """The hours in its range that are sealing or sealed: their aggregates stay as they were at the seal."""
    days = _days(reader, app, retraction)
    return tuple(sorted(hour for value in days.values() for hour in value.seals if _sealed(value, hour, retraction)))


def _sealed(value: Manifest, hour: int, retraction: Retraction) -> bool:
    if value.seal(hour) == OPEN:
        return False
    entries = [e for (_, other_hour), e in value.entries.items() if other_hour == hour and e.stamp_max_ms]
    if not entries:  # its rows have expired, so that no entry tells its stamps
        return retraction.data_from_ms < (hour + 1) * HOUR_MS and retraction.data_to_ms > hour * HOUR_MS
    return any(retraction.touches(hour, e.stamp_min_ms, e.stamp_max_ms, e.sources) for e in entries)


def _days(reader: Reader, app: int, retraction: Retraction) -> dict[int, Manifest]:
    """The manifests of the days in its range of data; damaged ones are left out, since they stop no retraction."""
    return survey.decode_manifests(app, _cells(reader, app, retraction))


def _cells(reader: Reader, app: int, retraction: Retraction) -> dict[int, bytes]:
    first, last = max(retraction.data_from_ms, 0) // HOUR_MS, retraction.data_to_ms // HOUR_MS
    days = cells.scan_cells(reader, app)
    return {day: cell for day, cell in days.items() if first // DAY_HOURS <= day <= last // DAY_HOURS}


# --- counting ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Count:
    """The counts so far."""

    samples: int = 0
    restored: int = 0
    versions: int = 0
    read: int = 0
    hours: set[int] = field(default_factory=set)
    sources: set[str] = field(default_factory=set)
    series: list[tuple[U64, U64]] = field(default_factory=list)
    first_ms: int = limits.TIME_MAX_MS
    last_ms: int = -1


@dataclass(frozen=True, slots=True)
class _HourShardRows:
    """An hour shard to count: its entry in force, and its pending blocks."""

    at: HourShard
    entry: Entry
    fresh: tuple[bytes, ...]  # keys of blocks in `log`


def _preview(reader: Reader, app: int, draft: Retraction) -> Preview:
    """Reads retractions, pending records, manifests, rows (PROTOCOL 9); newest hours first, as counting may stop."""
    now = Visibility(tuple(r for r in retractions.read(reader, app) if r.active()), _RetractedSeries(reader, app))
    then = replace(now, retractions=(draft,))
    page_request = _page_request(now.series_of(draft)) if draft.matchers else None
    table = epochs.read(reader, app)
    pending = _read_pending(reader, app, table.all_shards(app), draft)
    day_cells = _cells(reader, app, draft)
    days = survey.decode_manifests(app, day_cells)
    pending = {
        place: batches for place, batches in pending.items() if place[1] // DAY_HOURS not in day_cells.keys() - days
    }
    hour_shards = _hour_shards(app, pending, days, draft)
    groups: dict[tuple[int, int], list[_HourShardRows]] = defaultdict(list)
    for hour_shard in hour_shards:  # while the placement changes, one series may lie in two shards
        groups[-hour_shard.at.hour, hour_shard.at.shard if table.has_one_live_epoch else 0].append(hour_shard)
    count, counted_shards, is_damaged = _Count(), 0, len(days) < len(day_cells)
    for (negated, _), group in sorted(groups.items()):
        if count.read >= limits.RETRACT_PREVIEW_SAMPLES_MAX or counted_shards >= limits.RETRACT_PREVIEW_HOUR_SHARDS_MAX:
            break
        counted_shards += len(group)
        try:
            pieces = [piece for hour_shard in group for piece in _pieces(reader, hour_shard, page_request)]
        except CorruptBlock:
            is_damaged = True
            continue
        if pieces:
            _add(count, -negated, merge(pieces), now, then)
    sealed = sum(_sealed(value, hour, draft) for value in days.values() for hour in value.seals)
    return _preview_of(reader, app, count, sealed=sealed, at_least=is_damaged or counted_shards < len(hour_shards))


def _add(count: _Count, hour: int, piece: Piece, now: Visibility, then: Visibility) -> None:
    """Compares the winning samples with and without the draft."""
    count.read += len(piece)
    visible_then = then.visible_rows(piece)
    if visible_then is None:
        return
    visible_now = now.visible_rows(piece)
    after: BOOL = visible_then if visible_now is None else visible_then & visible_now
    bits = piece.values.view(np.int64)
    rows, _ = version_kernels.winners(piece.counts, piece.ts, bits, _ALL if visible_now is None else visible_now)
    others, _ = version_kernels.winners(piece.counts, piece.ts, bits, after)
    lost: I64 = rows[~visible_then[rows]]
    hidden = ~visible_then if visible_now is None else ~visible_then & visible_now
    count.versions += int(hidden.sum())
    if not len(lost):
        return
    owner = np.unique(kernels.spread(piece.counts, len(piece))[lost])
    count.samples += len(lost)
    count.restored += len(others) - (len(rows) - len(lost))
    count.hours.add(hour)
    count.series.append((piece.series[owner], piece.metrics[owner]))
    count.sources |= {piece.messages.sources[i] for i in np.unique(piece.messages.source[piece.message[lost]])}
    count.first_ms = min(count.first_ms, int(piece.ts[lost].min()))
    count.last_ms = max(count.last_ms, int(piece.ts[lost].max()))


def _preview_of(reader: Reader, app: int, count: _Count, *, sealed: int, at_least: bool) -> Preview:
    series = np.concatenate([s for s, _ in count.series] or [_NOTHING])
    metrics = np.concatenate([m for _, m in count.series] or [_NOTHING])
    pairs = np.unique(np.stack([metrics, series], axis=1), axis=0)
    return Preview(
        samples=count.samples,
        restored=count.restored,
        versions=count.versions,
        series=len(pairs),
        hours=len(count.hours),
        sources=tuple(sorted(count.sources)),
        metrics=_names(reader, app, pairs),
        first_ms=count.first_ms if count.samples else None,
        last_ms=count.last_ms if count.samples else None,
        sealed=sealed,
        at_least=at_least,
    )


def _names(reader: Reader, app: int, pairs: U64) -> tuple[str, ...]:
    """The names of the metrics, from one series of each."""
    _, heads = np.unique(pairs[:, 0], return_index=True)
    rows = reader.get("series", [keys.series(app, int(m), int(s)) for m, s in pairs[heads]]) if len(heads) else []
    return tuple(sorted(parse_canonical(row[dictionary.COLUMN])[0] for row in rows if row is not None))


# --- reading ----------------------------------------------------------------------------------------------------------


class _RetractedSeries:
    """The series that the matchers of a retraction select, read once each."""

    def __init__(self, reader: Reader, app: int) -> None:
        self._reader, self._app = reader, app
        self._pairs: dict[int, Pairs] = {}

    def __call__(self, retraction: Retraction) -> Pairs:
        if retraction.number not in self._pairs:
            self._pairs[retraction.number] = dictionary.matching(self._reader, self._app, retraction.matchers)
        return self._pairs[retraction.number]


def _page_request(pairs: Pairs) -> PageRequest:
    series, metrics = pairs
    return PageRequest({int(m): np.sort(series[metrics == m]) for m in np.unique(metrics)})


@dataclass(frozen=True, slots=True)
class _PendingBatches:
    """The pending batches of one (shard, hour), and whether any of them may hold samples in the draft's range."""

    batches: set[tuple[int, int]] = field(default_factory=set)
    touched: set[bool] = field(default_factory=set)


def _read_pending(
    reader: Reader, app: int, shards: Iterable[int], draft: Retraction
) -> dict[tuple[int, int], _PendingBatches]:
    """Groups all pending batches by (shard, hour): those that a draft does not touch may win in its place."""
    pending: dict[tuple[int, int], _PendingBatches] = defaultdict(_PendingBatches)
    for items in plan.group_by_day(commit_records.scan(reader, app, list(shards))).values():
        for item in items:
            commit, place = item.commit, pending[item.key.shard, item.hour]
            place.batches.add((item.key.ingest_ms, item.key.batch))
            place.touched.add(
                draft.touches(item.hour, commit.stamp_min_ms, commit.stamp_max_ms, commit.messages.sources)
            )
    return pending


def _hour_shards(
    app: int, pending: dict[tuple[int, int], _PendingBatches], days: dict[int, Manifest], draft: Retraction
) -> list[_HourShardRows]:
    """The open hour shards that it may touch. Replayed batches are read with the pending ones."""
    entries = {place: entry for value in days.values() for place, entry in value.entries.items()}
    touched = {place for place, batches in pending.items() if True in batches.touched}
    touched |= {(b, hour) for (b, hour), entry in entries.items() if retractions.touching([draft], entry, hour)}
    hour_shards = []
    for shard, hour in sorted(touched):
        if days.get(hour // DAY_HOURS, Manifest()).seal(hour) != OPEN:
            continue
        entry = entries.get((shard, hour), Entry())
        replayed = {(r.ingest_ms, r.batch) for r in entry.state.replay}
        to_read = (pending[shard, hour].batches if (shard, hour) in pending else set()) | replayed
        fresh = tuple(keys.LogKey(shard, app, hour, ms, batch).to_bytes() for ms, batch in sorted(to_read))
        hour_shards.append(_HourShardRows(HourShard(shard, app, hour), entry, fresh))
    return hour_shards


def _pieces(reader: Reader, hour_shard: _HourShardRows, page_request: PageRequest | None) -> Iterator[Piece]:
    """Reads all versions in an hour shard, of the selected series."""
    for generation in hour_shard.entry.state.generations:
        yield from _generation(reader, hour_shard.at, generation, page_request)
    for row in reader.get("log", hour_shard.fresh) if hour_shard.fresh else []:
        if row is None:
            continue  # a generation in force holds it, and a purge deleted it; readers report a lost one
        piece = Piece.of_row(row)
        if page_request is not None:
            metrics = [np.full(len(s), m, np.uint64) for m, s in page_request.series.items() if s is not None]
            series = [s for s in page_request.series.values() if s is not None]
            piece = narrow(piece, contains_pairs(piece.series, piece.metrics, *map(_joined, (series, metrics))))
        yield piece


def _joined(parts: Sequence[U64]) -> U64:
    return np.concatenate([*parts, _NOTHING])


def _generation(reader: Reader, at: HourShard, generation: Generation, page_request: PageRequest | None) -> list[Piece]:
    def fetch(table: str, names: Sequence[bytes]) -> list[object | None]:
        rows = reader.get(table, names)
        return [None if row is None else _FORMS[table](row[cells.COLUMN]) for row in rows]

    return generations.read_generation(
        fetch, lambda: generations.read_inputs(reader, at, generation), at, generation, page_request
    )
