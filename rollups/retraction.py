"""Taking a range of writes out of every answer, and putting it back: what it would touch, the act, the undo (rule 17).

``Draft`` is what a person asks for; ``preview`` counts what it would hide, exactly, from raw of the units that it may
touch and of no others; ``retract`` puts its row in force and says which hours their seal keeps as they are (rule 23);
``undo`` ends it. No sample is moved or deleted here: readers compare, and the next run rebuilds hours and days.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rollups.decide import plan
from rollups.manifest import cells
from spm import limits
from spm.arrays import BOOL, I64, U64
from spm.errors import IntegrityError, Refused
from spm.limits import DAY_HOURS, HOUR_MS
from spm.store import dictionary, epochs, keys, manifest
from spm.store.backends.base import Backend, Reader
from spm.store.encoding import kernels
from spm.store.encoding.blocks import ChunkPage, TimelinesPage
from spm.store.ledger import commit_records
from spm.store.manifest import OPEN, Entry, Generation, Manifest
from spm.store.matchers import Matcher, mask, matches_empty
from spm.store.versions import generations, retractions
from spm.store.versions.generations import HourShardData, PageRequest
from spm.store.versions.merge import Piece, merge, narrow
from spm.store.versions.retractions import Retraction
from spm.store.versions.visibility import Pairs, Visibility, among
from spm.wire import parse_canonical

_FORMS = {"chunks": ChunkPage.from_bytes, "timelines": TimelinesPage.from_bytes}
_ALL = np.empty(0, np.bool_)
_NOTHING = np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True)
class Draft:
    """What is to be taken out. Conditions left open do not narrow it; ``write_to_ms`` is by default the present."""

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
    """What a draft would hide of what answers show now."""

    samples: int = 0  # (series, time)s whose value would go or change
    restored: int = 0  # of these: how many show an older value again
    versions: int = 0  # stored versions that would be hidden
    series: int = 0
    hours: int = 0
    sources: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    first_ms: int | None = None
    last_ms: int | None = None
    sealed: int = 0  # hours in its range whose raw is gone or going: they stay as they are
    at_least: bool = False  # there is more than was counted


@dataclass(frozen=True, slots=True)
class Done:
    """A retraction as it is now, and the hours it cannot reach any more."""

    retraction: Retraction
    sealed: tuple[int, ...]


def drafted(draft: Draft, now_ms: int) -> Retraction:
    """The draft as a retraction without a number; raises ``Refused`` for one that is empty, upside down or too long."""
    _check_narrow(draft)
    write_to = now_ms if draft.write_to_ms is None else draft.write_to_ms
    data_to = limits.TIME_MAX_MS if draft.data_to_ms is None else draft.data_to_ms
    found = Retraction(
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
    if found.write_from_ms > found.write_to_ms or found.data_from_ms >= found.data_to_ms:
        raise Refused("a range of this retraction ends before it begins", remedy="Swap its ends.")
    if len(found.reason) > limits.RETRACT_REASON_CHARS_MAX:
        raise Refused("the reason is too long", got=len(found.reason), wanted=limits.RETRACT_REASON_CHARS_MAX)
    if len(found.matchers) > limits.LABELS_MAX or len(found.source.encode()) > limits.SOURCE_BYTES_MAX:
        raise Refused("the conditions are longer than any series or source")
    for matcher in found.matchers:
        mask([""], matcher)  # a broken expression is told now, not at every read
    return found


def _check_narrow(draft: Draft) -> None:
    """Nobody takes out everything by leaving fields empty."""
    named = draft.source or any(not matches_empty(m) for m in draft.matchers)
    bounded = draft.write_from_ms is not None or None not in (draft.data_from_ms, draft.data_to_ms)
    if not (named or bounded):
        raise Refused(
            "this would take out everything the app has",
            remedy="Name a source, a series, a time from which it was sent, or both ends of its times.",
        )


def preview(store: Backend, app: int, draft: Retraction) -> Preview:
    """What would go. Exact up to ``RETRACT_PREVIEW_*`` of the limits, above them a lower bound that says so."""
    for _ in range(limits.RESTARTS_MAX):
        try:
            with store.snapshot() as reader:
                return _preview(reader, app, draft)
        except IntegrityError:
            continue  # a run or a purge went by, where the store has no snapshots: look again
    with store.snapshot() as reader:
        return _preview(reader, app, draft)


def retract(store: Backend, app: int, draft: Retraction) -> Done:
    """Put it in force: the next read leaves out what it hides. First the row, then the manifests (rule 23)."""
    if not draft.reason:
        raise Refused("a retraction needs a reason", remedy="Say why, for whoever looks at the chart next year.")
    made = retractions.add(store, app, draft)
    return Done(made, sealed_hours(store, app, made))


def undo(store: Backend, app: int, number: int, now_ms: int) -> Done:
    """End one: what it hid counts again, also in charts of long ago."""
    ended = retractions.end(store, app, number, now_ms)
    return Done(ended, sealed_hours(store, app, ended))


def sealed_hours(reader: Reader, app: int, retraction: Retraction) -> tuple[int, ...]:
    """The hours in its range that are sealing or sealed: their hours stay what they were when the seal was put."""
    days = _days(reader, app, retraction)
    return tuple(sorted(hour for value in days.values() for hour in value.seals if _sealed(value, hour, retraction)))


def _sealed(value: Manifest, hour: int, retraction: Retraction) -> bool:
    if value.seal(hour) == OPEN:
        return False
    known = [e for (_, held), e in value.entries.items() if held == hour and e.sources]
    if not known:  # nothing says who wrote there and when
        return retraction.data_from_ms < (hour + 1) * HOUR_MS and retraction.data_to_ms > hour * HOUR_MS
    return any(retraction.touches(hour, e.stamp_min_ms, e.stamp_max_ms, e.sources) for e in known)


def _days(reader: Reader, app: int, retraction: Retraction) -> dict[int, Manifest]:
    """The manifests of the days in its range of data."""
    first, last = max(retraction.data_from_ms, 0) // HOUR_MS, retraction.data_to_ms // HOUR_MS
    return {
        day: manifest.decode(cell)
        for day, cell in cells.scan_cells(reader, app).items()
        if first // DAY_HOURS <= day <= last // DAY_HOURS
    }


# --- counting ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Count:
    """What was found so far."""

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
class _Unit:
    """A unit to look at: what is in force, and its pending blocks."""

    at: HourShardData
    entry: Entry
    fresh: tuple[bytes, ...]  # keys of blocks in `log`


def _preview(reader: Reader, app: int, draft: Retraction) -> Preview:
    """Order: retractions, pending, manifests, rows (rule 9). Newest hours first, so that a bound tells of them."""
    now = Visibility(tuple(r for r in retractions.read(reader, app) if r.active()), _Series(reader, app))
    then = replace(now, retractions=(draft,))
    wanted = _wanted(now.series_of(draft)) if draft.matchers else None
    spread = epochs.read(reader, app)
    waiting = _waiting(reader, app, spread.all(app), draft)
    days = _days(reader, app, draft)
    found = _units(app, waiting, days, draft)
    groups: dict[tuple[int, int], list[_Unit]] = defaultdict(list)
    for unit in found:  # while shards change, one series may lie in two of them
        groups[-unit.at.hour, unit.at.shard if spread.settled else 0].append(unit)
    count, looked = _Count(), 0
    for (negated, _), group in sorted(groups.items()):
        if count.read >= limits.RETRACT_PREVIEW_SAMPLES_MAX or looked >= limits.RETRACT_PREVIEW_UNITS_MAX:
            break
        looked += len(group)
        pieces = [piece for unit in group for piece in _pieces(reader, unit, wanted)]
        if pieces:
            _add(count, -negated, merge(pieces), now, then)
    sealed = sum(_sealed(value, hour, draft) for value in days.values() for hour in value.seals)
    return _told(reader, app, count, sealed=sealed, at_least=looked < len(found))


def _add(count: _Count, hour: int, piece: Piece, now: Visibility, then: Visibility) -> None:
    """Compare who wins with and without the draft."""
    count.read += len(piece)
    left = then.kept(piece)
    if left is None:
        return
    seen = now.kept(piece)
    after: BOOL = left if seen is None else left & seen
    bits = piece.values.view(np.int64)
    rows, _ = kernels.winners(piece.counts, piece.ts, bits, _ALL if seen is None else seen)
    others, _ = kernels.winners(piece.counts, piece.ts, bits, after)
    gone: I64 = rows[~left[rows]]
    hidden = ~left if seen is None else ~left & seen
    count.versions += int(hidden.sum())
    if not len(gone):
        return
    owner = np.unique(kernels.spread(piece.counts, len(piece))[gone])
    count.samples += len(gone)
    count.restored += len(others) - (len(rows) - len(gone))
    count.hours.add(hour)
    count.series.append((piece.series[owner], piece.metrics[owner]))
    count.sources |= {piece.messages.sources[i] for i in np.unique(piece.messages.source[piece.message[gone]])}
    count.first_ms = min(count.first_ms, int(piece.ts[gone].min()))
    count.last_ms = max(count.last_ms, int(piece.ts[gone].max()))


def _told(reader: Reader, app: int, count: _Count, *, sealed: int, at_least: bool) -> Preview:
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


class _Series:
    """Which series the matchers of a retraction select, looked up once each."""

    def __init__(self, reader: Reader, app: int) -> None:
        self._reader, self._app = reader, app
        self._found: dict[int, Pairs] = {}

    def __call__(self, retraction: Retraction) -> Pairs:
        if retraction.number not in self._found:
            self._found[retraction.number] = dictionary.matching(self._reader, self._app, retraction.matchers)
        return self._found[retraction.number]


def _wanted(pairs: Pairs) -> PageRequest:
    series, metrics = pairs
    return PageRequest({int(m): np.sort(series[metrics == m]) for m in np.unique(metrics)})


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Pending batches of one (shard, hour), and whether any of them may hold something in the draft's range."""

    batches: set[tuple[int, int]] = field(default_factory=set)
    touched: set[bool] = field(default_factory=set)


def _waiting(reader: Reader, app: int, shards: Iterable[int], draft: Retraction) -> dict[tuple[int, int], _Waiting]:
    """All that is pending by (shard, hour): what a draft does not touch may be what shows in its place."""
    found: dict[tuple[int, int], _Waiting] = defaultdict(_Waiting)
    for items in plan.by_day(commit_records.scan(reader, app, list(shards))).values():
        for item in items:
            commit, place = item.commit, found[item.key.shard, item.hour]
            place.batches.add((item.key.ingest_ms, item.key.batch))
            place.touched.add(
                draft.touches(item.hour, commit.stamp_min_ms, commit.stamp_max_ms, commit.messages.sources)
            )
    return found


def _units(
    app: int, waiting: dict[tuple[int, int], _Waiting], days: dict[int, Manifest], draft: Retraction
) -> list[_Unit]:
    """The open units that it may touch. Replayed batches are read beside the generations, as pending ones are."""
    entries = {place: entry for value in days.values() for place, entry in value.entries.items()}
    touched = {place for place, found in waiting.items() if True in found.touched}
    touched |= {(b, hour) for (b, hour), entry in entries.items() if retractions.touching([draft], entry, hour)}
    found = []
    for shard, hour in sorted(touched):
        if days.get(hour // DAY_HOURS, Manifest()).seal(hour) != OPEN:
            continue
        entry = entries.get((shard, hour), Entry())
        batches = (waiting[shard, hour].batches if (shard, hour) in waiting else set()) | {
            (r.ingest_ms, r.batch) for r in entry.state.replay
        }
        fresh = tuple(keys.LogKey(shard, app, hour, ms, batch).to_bytes() for ms, batch in sorted(batches))
        found.append(_Unit(HourShardData(shard, app, hour), entry, fresh))
    return found


def _pieces(reader: Reader, unit: _Unit, wanted: PageRequest | None) -> Iterator[Piece]:
    """All versions of a unit, of the wanted series."""
    for generation in unit.entry.state.generations:
        yield from _generation(reader, unit.at, generation, wanted)
    for row in reader.get("log", unit.fresh) if unit.fresh else []:
        if row is None:
            continue  # a generation in force holds it, and a purge took it; a lost one the reader names
        piece = Piece.of_row(row)
        if wanted is not None:
            chosen = [np.full(len(s), m, np.uint64) for m, s in wanted.series.items() if s is not None]
            series = [s for s in wanted.series.values() if s is not None]
            piece = narrow(piece, among(piece.series, piece.metrics, *map(_joined, (series, chosen))))
        yield piece


def _joined(parts: Sequence[U64]) -> U64:
    return np.concatenate([*parts, _NOTHING])


def _generation(reader: Reader, at: HourShardData, generation: Generation, wanted: PageRequest | None) -> list[Piece]:
    def fetch(table: str, names: Sequence[bytes]) -> list[object | None]:
        rows = reader.get(table, names)
        return [None if row is None else _FORMS[table](row[cells.COLUMN]) for row in rows]

    return generations.read_generation(
        fetch, lambda: generations.read_inputs(reader, at, generation), at, generation, wanted
    )
