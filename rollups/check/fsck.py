"""Checks an app's data in the store against itself, and repairs what is provably safe to repair.

Enter by ``fsck``. In order: no block lacks its commit record (``rebuild_commits``); every row that a manifest names
exists and can be read, and so can the rows of the balance; hours in force equal a recount of their samples by other
means (``recount_hour``), days in force a recount of their hours. It reads what readers read and changes nothing, unless
``repair`` is set: then it writes lost commit records again, and takes wrong hours or days out of force if their inputs
can be read, so that readers count again at once and the next run rebuilds them. Samples are never changed.
``hour_check`` and ``day_check`` can also be called alone, by other executors.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec
import numpy as np

from rollups.check import rebuild, recount
from rollups.check.findings import DAMAGED, DIFFERS, LOST, UNKNOWN, UNLISTED, Finding, Report
from rollups.check.rebuild_manifest import rebuild_manifest
from rollups.compute import source
from rollups.compute.source import PackPlace
from rollups.compute.task import RetractedSeries
from rollups.decide.plan import MergeKind
from rollups.decide.work import HourShardTask
from rollups.delete import purge
from rollups.manifest import cells
from rollups.run import agenda
from spm import limits
from spm.arrays import U64
from spm.clock import random_u64
from spm.errors import CorruptBlock, IntegrityError
from spm.limits import DAY_HOURS
from spm.store import epochs, keys, manifest
from spm.store.backends.base import Backend, Reader
from spm.store.encoding import blocks
from spm.store.encoding.blocks import LogBlock, TimelinesPage
from spm.store.encoding.chunk_page import ChunkPage
from spm.store.ledger import commit_records, folded_hours, watermarks
from spm.store.manifest import (
    EXPIRED,
    SEALED,
    DayPack,
    Entry,
    Generation,
    HourPack,
    Manifest,
    Month,
    fingerprint,
    first_day_of,
    month_of,
)
from spm.store.rollup import rows as rollup_rows
from spm.store.rollup.aggregates import Aggregates, concatenate
from spm.store.versions import generations, retractions
from spm.store.versions.generations import HourShard, Inputs
from spm.store.versions.merge import narrow
from spm.store.versions.retractions import Retraction
from spm.store.versions.visibility import Visibility

__all__ = ["Finding", "Report", "day_check", "fsck", "hour_check"]

_READ_ERRORS = (IntegrityError, CorruptBlock)
_SHOWN = 5  # differences shown of one hour or day; one is enough to rebuild it


def fsck(
    store: Backend,
    app: int,
    *,
    now_ms: int,
    hours: Collection[int] | None = None,
    repair: bool = False,
    rebuild_manifests: bool = False,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> Report:
    """Checks everything; recounts the hours of ``hours`` and their days (``None``: all of them).

    ``rebuild_manifests`` rebuilds manifests that cannot be read, before the rest. ``watch`` gets the days done and the
    days in all.
    """
    report = Report()
    if rebuild_manifests:
        _rebuild_manifests(store, app, report, now_ms)
    rebuild.rebuild_commits(
        store,
        app,
        rebuild.find_lost_blocks(store, app, report, before_ms=now_ms - limits.FSCK_BLOCK_AGE_MS),
        report,
        repair=repair,
    )
    months = _months(store, app, report)
    values = _manifests(store, app, report)
    for number, (day, value) in enumerate(sorted(values.items()), 1):
        try:
            _check_manifest(store, app, day, value, months, report, now_ms, hours=hours, repair=repair)
        except _READ_ERRORS as error:
            report.add(UNKNOWN, "manifest", keys.manifest(app, day), f"day {day} is not checked to its end: {error}")
        watch(number, len(values))
    for month, month_value in months.items():
        for shard, pack in month_value.days.items():
            _verify_pack(store, PackPlace("days", app, shard, month, first_day_of(month) * DAY_HOURS), pack, report)
    _verify_balance(store, app, report)
    try:
        superseded = purge.purge(store, app, keep=limits.HISTORY_MAX, dry_run=True)
        report.count(unreferenced=sum(superseded.rows.values()))
    except _READ_ERRORS as error:
        report.add(UNKNOWN, "manifest", b"", f"what the next purge deletes is not known: {error}")
    return report


def _check_manifest(
    store: Backend,
    app: int,
    day: int,
    value: Manifest,
    months: Mapping[int, Month],
    report: Report,
    now_ms: int,
    *,
    hours: Collection[int] | None,
    repair: bool,
) -> None:
    """Verifies the rows of one day, and recounts its hours and its days."""
    _verify_day(store, app, day, value, report)
    in_scope = [s for s in {s for _, s in value.entries} if hours is None or s in hours]
    wrong = _check_hours(store, app, value, in_scope, report)
    if wrong and repair:
        _drop_hours(store, app, day, value, wrong, report, now_ms)
    if hours is None or in_scope:
        _check_day(store, app, day, value, months, report, now_ms, repair=repair)


def _rebuild_manifests(store: Backend, app: int, report: Report, now_ms: int) -> None:
    for day, cell in cells.scan_cells(store, app).items():
        try:
            manifest.decode(cell)
        except CorruptBlock:
            rebuild_manifest(store, app, day, report, now_ms=now_ms)


def _manifests(reader: Reader, app: int, report: Report) -> dict[int, Manifest]:
    values = {}
    for day, cell in cells.scan_cells(reader, app).items():
        try:
            values[day] = manifest.decode(cell)
        except CorruptBlock as error:
            report.add(DAMAGED, "manifest", keys.manifest(app, day), str(error))
    return values


def _months(reader: Reader, app: int, report: Report) -> dict[int, Month]:
    values = {}
    for month, cell in cells.scan_cells(reader, app, months=True).items():
        try:
            values[month] = manifest.decode_month(cell)
        except CorruptBlock as error:
            report.add(DAMAGED, "manifest", keys.manifest_month(app, month), str(error))
    return values


# --- rows -------------------------------------------------------------------------------------------------------------


def _verify_balance(reader: Reader, app: int, report: Report) -> None:
    """Verifies the rows of the balance: watermarks of processes, commit records, ledger rows."""
    processes = watermarks.read(reader, app)
    for process, state in processes.items():
        if state.damaged:
            report.add(DAMAGED, "marks", keys.watermark(app, process), f"of process {process}: {state.damaged}")
    report.count(rows=len(processes))
    shards = epochs.read(reader, app).all_shards(app)
    waiting = ((w.key.to_bytes(), w.cell) for w in commit_records.scan(reader, app, list(shards)))
    accounts = (
        (key, row.get(folded_hours.COLUMN, row.get(commit_records.COLUMN, b"")), folded_hours.COLUMN in row)
        for key, row in reader.scan("ledger", *keys.ledger_range(app))
    )
    for key, raw in waiting:
        _verify_cell(report, "pending", key, partial(commit_records.decode, raw))
    for key, raw, is_folded in accounts:
        decode = partial(folded_hours.decode, raw) if is_folded else partial(commit_records.decode, raw, blocks.LEDGER)
        _verify_cell(report, "ledger", key, decode)


def _verify_cell(report: Report, table: str, key: bytes, decode: Callable[[], object]) -> None:
    report.count(rows=1)
    try:
        decode()
    except CorruptBlock as error:
        report.add(DAMAGED, table, key, str(error))


def _verify_day(reader: Reader, app: int, day: int, value: Manifest, report: Report) -> None:
    """Verifies every row that a day's manifest names, in force or in history, except expired samples and hours."""
    for (shard, hour), entry in value.entries.items():
        if value.seal(hour) < SEALED:
            _verify_hour_shard(reader, HourShard(shard, app, hour), entry, report)
    for shard, pack in value.hours.items():
        if EXPIRED not in value.seals.values():
            _verify_pack(reader, PackPlace("hours", app, shard, day, day * DAY_HOURS), pack, report)


def _verify_hour_shard(reader: Reader, hour_shard: HourShard, entry: Entry, report: Report) -> None:
    history = [former.state for former in entry.history]
    for generation in {g: None for state in [entry.state, *history] for g in state.generations}:
        _verify_generation(reader, hour_shard, generation, report)
    for replay in {r for state in [entry.state, *history] for r in state.replay}:
        key = keys.LogKey(hour_shard.shard, hour_shard.app, hour_shard.hour, replay.ingest_ms, replay.batch).to_bytes()
        _verify_row(reader, "log", key, LogBlock.from_cells, report)


def _verify_generation(reader: Reader, hour_shard: HourShard, generation: Generation, report: Report) -> None:
    inputs = _directory(reader, hour_shard, generation, report)
    if inputs is None:
        return
    place = hour_shard.shard, hour_shard.hour, generation.number
    names = purge.pages_of(hour_shard.app, place, inputs)
    for key in names["chunks"]:
        _verify_row(reader, "chunks", key, lambda row: ChunkPage.from_bytes(row[generations.COLUMN]).unpacked(), report)
    for key in names["timelines"]:
        _verify_row(reader, "timelines", key, lambda row: TimelinesPage.from_bytes(row[generations.COLUMN]), report)
    start = keys.timeline(hour_shard.shard, hour_shard.app, hour_shard.hour, generation.number, 0)
    stop = keys.timeline(hour_shard.shard, hour_shard.app, hour_shard.hour, generation.number, 0xFFFF) + b"\0"
    for key, _ in reader.scan("timelines", start, stop, keys_only=True):
        if key not in names["timelines"]:
            report.add(UNLISTED, "timelines", key, "a page that its directory does not name")
    for metric in inputs.pages:
        start = keys.chunk(hour_shard.shard, hour_shard.app, metric, hour_shard.hour, generation.number, 0)
        stop = keys.chunk(hour_shard.shard, hour_shard.app, metric, hour_shard.hour, generation.number, 0xFFFF) + b"\0"
        for key, _ in reader.scan("chunks", start, stop, keys_only=True):
            if key not in names["chunks"]:
                report.add(UNLISTED, "chunks", key, "a page that its directory does not name")


def _directory(reader: Reader, hour_shard: HourShard, generation: Generation, report: Report) -> Inputs | None:
    key = generations.inputs_key(hour_shard, generation)
    if not _verify_row(reader, "inputs", key, lambda row: generations.decode_inputs(row[generations.COLUMN]), report):
        return None
    return generations.read_inputs(reader, hour_shard, generation)


def _verify_pack(reader: Reader, place: PackPlace, pack: HourPack | DayPack, report: Report) -> None:
    inputs = _directory(reader, place.hour_shard, pack.generation, report)
    for metric, pages in inputs.pages.items() if inputs else ():
        for page in pages:
            key = place.key(pack.generation.number, metric, page)
            _verify_row(reader, place.table, key, rollup_rows.decode_row, report)


def _verify_row(
    reader: Reader, table: str, key: bytes, decode: Callable[[dict[bytes, bytes]], object], report: Report
) -> bool:
    [row] = reader.get(table, [key])
    report.count(rows=1)
    if row is None:
        report.add(LOST, table, key, "a row that a manifest names is missing")
        return False
    try:
        decode(row)
    except (CorruptBlock, KeyError) as error:
        report.add(DAMAGED, table, key, str(error))
        return False
    return True


# --- hours ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecountResult:
    """A recount of one hour or day; ``usable``: all inputs could be read, so that readers can count them again."""

    differences: tuple[recount.AggregateDifference, ...] = ()
    error: str = ""
    usable: bool = True

    @property
    def text(self) -> str:
        """The text for the report."""
        more = len(self.differences) - _SHOWN
        text = "; ".join(map(str, self.differences[:_SHOWN]))
        return self.error or text + (f"; {more} more" if more > 0 else "")


def hour_check(
    reader: Reader, app: int, shard: int, hour: int, value: Manifest, visibility: Visibility
) -> RecountResult:
    """Recounts one hour in force from its samples; ``visibility`` hides the retractions that the manifest names."""
    pack, entry = value.hours[shard], value.entry(shard, hour)
    task = HourShardTask(
        app, shard, hour, MergeKind.FULL, entry.state.generations, entry.state.replay, (), 0, wants_hours=False
    )
    try:
        pieces = source.read_hour_shard(reader, task).pieces
    except _READ_ERRORS as error:
        return RecountResult(error=f"its samples cannot be read: {error}", usable=False)
    spread = epochs.read(reader, app)
    place = PackPlace("hours", app, shard, hour // DAY_HOURS, hour // DAY_HOURS * DAY_HOURS)
    try:
        metrics, stored = _stored(reader, place, pack.generation, hour)
    except _READ_ERRORS as error:
        return RecountResult(error=f"its hours cannot be read: {error}")
    for i, piece in enumerate(pieces):
        abandoned = epochs.in_closed_epoch_only(spread, app, shard, piece.metrics)
        pieces[i] = piece if abandoned is None else narrow(piece, ~abandoned)
    abandoned = epochs.in_closed_epoch_only(spread, app, shard, metrics)
    if abandoned is not None:
        metrics, stored = metrics[~abandoned], stored.take(~abandoned)
    return RecountResult(tuple(recount.differences(metrics, stored, recount.recount_hour(pieces, visibility))))


def _stored(reader: Reader, place: PackPlace, generation: Generation, step: int) -> tuple[U64, Aggregates]:
    parts = [(metric, steps.at(step)) for metric, steps in source.read_pack(reader, place, generation)]
    parts = [(metric, rows) for metric, rows in parts if len(rows)]
    metrics = np.repeat(np.array([m for m, _ in parts], np.uint64), [len(rows) for _, rows in parts])
    return metrics, concatenate([rows for _, rows in parts]) if parts else Aggregates.empty()


def _check_hours(
    store: Backend, app: int, value: Manifest, hours: Sequence[int], report: Report
) -> list[tuple[int, int, RecountResult]]:
    """Returns (shard, hour, recount) of the hours in force that are wrong."""
    known = {r.number: r for r in retractions.read(store, app)}
    retracted = RetractedSeries(store)
    wrong = []
    for shard, hour in sorted(place for place in value.entries if place[1] in hours and value.seal(place[1]) < SEALED):
        of = value.hours[shard].hours.get(hour) if shard in value.hours else None
        if of is None or of.inputs != fingerprint(value.entry(shard, hour).state):
            report.count(stale=1)
            continue
        result = _check_hour(store, app, shard, hour, value, known, of.retractions, retracted)
        report.count(hours=1)
        if result.differences or result.error:
            wrong.append((shard, hour, result))
    for shard, hour, result in wrong:
        key = keys.inputs(shard, app, hour // DAY_HOURS * DAY_HOURS, value.hours[shard].generation.number)
        kind = DIFFERS if result.differences else UNKNOWN
        report.add(kind, "hours", key, f"hour {hour}: {result.text}")
    return wrong


def _check_hour(
    reader: Reader,
    app: int,
    shard: int,
    hour: int,
    value: Manifest,
    known: Mapping[int, Retraction],
    packed: bytes,
    retracted: RetractedSeries,
) -> RecountResult:
    numbers = retractions.numbers(packed)
    if not numbers <= known.keys():
        return RecountResult(error=f"its hours leave out unknown retractions: {sorted(numbers - known.keys())}")
    visibility = Visibility(tuple(known[n] for n in sorted(numbers)), retracted.of_app(app))
    return hour_check(reader, app, shard, hour, value, visibility)


def _drop_hours(
    store: Backend,
    app: int,
    day: int,
    value: Manifest,
    wrong: Sequence[tuple[int, int, RecountResult]],
    report: Report,
    now_ms: int,
) -> None:
    """Takes wrong hours out of force if their samples can be read: readers count them again at once."""
    to_drop = {(shard, hour) for shard, hour, result in wrong if result.usable}
    hours = {
        shard: msgspec.structs.replace(pack, hours={s: of for s, of in pack.hours.items() if (shard, s) not in to_drop})
        for shard, pack in value.hours.items()
    }
    nonce = random_u64()
    after = Manifest(nonce, nonce, value.entries, hours, value.seals)
    key = keys.manifest(app, day)
    cell = cells.read_cell(store, "manifest", key)
    if not to_drop or manifest.decode(cell) != value:
        return  # a run has changed the day: the next check repairs it
    if cells.swap(store, key, cell, manifest.encode(after), cells.has_nonce(nonce))[0]:
        agenda.mark_due(store, app, [day], now_ms)
        for shard, hour in to_drop:
            pack = keys.inputs(shard, app, day * DAY_HOURS, value.hours[shard].generation.number)
            _repaired(report, "hours", pack, f"hour {hour}:")


def _repaired(report: Report, table: str, key: bytes, text: str) -> None:
    for i, finding in enumerate(report.findings):
        if (finding.table, finding.key) == (table, key) and finding.text.startswith(text):
            report.findings[i] = Finding(finding.kind, table, key, finding.text, repaired=True)


# --- days -------------------------------------------------------------------------------------------------------------


def day_check(reader: Reader, app: int, shard: int, day: int, value: Manifest, days: DayPack) -> RecountResult:
    """Recounts one day in force from its hours in force."""
    month = month_of(day)
    first = first_day_of(month) * DAY_HOURS
    hours = [hour for hour, _ in manifest.hours_of(value, shard)]
    hour_rows = PackPlace("hours", app, shard, day, day * DAY_HOURS)
    try:
        parts = [_stored(reader, hour_rows, value.hours[shard].generation, hour) for hour in hours]
    except _READ_ERRORS as error:
        return RecountResult(error=f"its hours cannot be read: {error}", usable=False)
    try:
        metrics, stored = _stored(reader, PackPlace("days", app, shard, month, first), days.generation, day)
    except _READ_ERRORS as error:
        return RecountResult(error=f"its days cannot be read: {error}")
    return RecountResult(tuple(recount.differences(metrics, stored, recount.recount_day(parts))))


def _exact_days(
    day: int, value: Manifest, months: Mapping[int, Month], report: Report
) -> Iterator[tuple[int, DayPack]]:
    """Yields the shards whose daily row is made of the hours in force."""
    month = months.get(month_of(day), Month())
    for shard, days in month.days.items():
        hour_rows = value.hours.get(shard)
        if day not in days.days or hour_rows is None or EXPIRED in value.seals.values():
            continue
        hours = manifest.hours_of(value, shard)
        fresh = all(s in hour_rows.hours and hour_rows.hours[s].inputs == mark for s, mark in hours)
        left_out = retractions.day_fingerprint(
            (s, hour_rows.hours[s].retractions) for s, _ in hours if s in hour_rows.hours
        )
        in_force = days.days[day]
        if fresh and in_force.inputs == manifest.day_fingerprint(hours) and in_force.retractions == left_out:
            yield shard, days
        else:
            report.count(stale=1)


def _check_day(
    store: Backend,
    app: int,
    day: int,
    value: Manifest,
    months: Mapping[int, Month],
    report: Report,
    now_ms: int,
    *,
    repair: bool,
) -> None:
    for shard, days in list(_exact_days(day, value, months, report)):
        result = day_check(store, app, shard, day, value, days)
        report.count(days=1)
        if not (result.differences or result.error):
            continue
        first = first_day_of(month_of(day)) * DAY_HOURS
        key = keys.inputs(shard, app, first, days.generation.number)
        done = repair and result.usable and _drop_day(store, app, shard, day, now_ms)
        kind = DIFFERS if result.differences else UNKNOWN
        report.add(kind, "days", key, f"day {day}: {result.text}", repaired=done)


def _drop_day(store: Backend, app: int, shard: int, day: int, now_ms: int) -> bool:
    """Takes a wrong day out of force: hours answer for it at once."""
    key = keys.manifest_month(app, month_of(day))
    cell = cells.read_cell(store, "manifest", key)
    now = manifest.decode_month(cell)
    other_days = {d: of for d, of in now.days[shard].days.items() if d != day}
    after = Month(random_u64(), {**now.days, shard: msgspec.structs.replace(now.days[shard], days=other_days)})
    if not store.check_and_put("manifest", key, cells.COLUMN, cell, manifest.encode_month(after)):
        return False
    agenda.mark_due(store, app, [day], now_ms)
    return True
