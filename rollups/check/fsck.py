"""Checks an app's data in the store against itself, and repairs what is provably safe to repair.

Enter by ``fsck``. In order: no block lacks its mark (``rebuild``); every row that a manifest names is there and can be
read, and so can be what the account rests on; hours in force equal a recount of their samples by other means
(``recount``), days in force one of their hours. It reads what readers read and changes nothing, unless told to repair:
then lost commit records are written again, and hours or days that are wrong go out of force where the level below is
there, so that readers count anew at once and the next run rebuilds them. Samples are never touched. ``hour_check`` and
``day_check`` stand alone, for other executors.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from rollups.check import rebuild, recount
from rollups.check.findings import DAMAGED, DIFFERS, LOST, UNKNOWN, UNLISTED, Finding, Report
from rollups.compute import source
from rollups.compute.source import Place
from rollups.compute.task import Chosen
from rollups.decide.plan import Kind
from rollups.decide.work import UnitTask
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
from spm.store.encoding.blocks import ChunkPage, LogBlock, TimelinesPage
from spm.store.ledger import commit_records, watermarks
from spm.store.manifest import (
    EXPIRED,
    SEALED,
    Days,
    Entry,
    Generation,
    Hours,
    Manifest,
    Month,
    fingerprint,
    first_day_of,
    month_of,
)
from spm.store.rollup import rows as rollup_rows
from spm.store.rollup.aggregates import Aggregates, side_by_side
from spm.store.versions import generations, retractions
from spm.store.versions.generations import HourShardData, Inputs
from spm.store.versions.merge import narrow
from spm.store.versions.retractions import Retraction
from spm.store.versions.visibility import Visibility

__all__ = ["Finding", "Report", "day_check", "fsck", "hour_check"]

_TROUBLE = (IntegrityError, CorruptBlock)
_SHOWN = 5  # differences of one hour or day that are told; one is enough to rebuild it


def fsck(
    store: Backend,
    app: int,
    *,
    now_ms: int,
    hours: Collection[int] | None = None,
    repair: bool = False,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> Report:
    """Check everything; recount the hours of ``hours`` and the days they lie in (``None``: all of them).

    ``watch`` is told of days done and days in all.
    """
    report = Report()
    rebuild.rebuild(
        store, app, rebuild.lost(store, app, report, before_ms=now_ms - limits.FSCK_BLOCK_AGE_MS), report, repair=repair
    )
    months = _months(store, app, report)
    values = _manifests(store, app, report)
    for number, (day, value) in enumerate(sorted(values.items()), 1):
        _verify_day(store, app, day, value, report)
        chosen = [s for s in {s for _, s in value.entries} if hours is None or s in hours]
        wrong = _check_hours(store, app, value, chosen, report)
        if wrong and repair:
            _drop_hours(store, app, day, value, wrong, report, now_ms)
        if hours is None or chosen:
            _check_day(store, app, day, value, months, report, now_ms, repair=repair)
        watch(number, len(values))
    for month, found in months.items():
        for shard, pack in found.days.items():
            _verify_pack(store, Place("days", app, shard, month, first_day_of(month) * DAY_HOURS), pack, report)
    _verify_accounts(store, app, report)
    left = purge.purge(store, app, keep=limits.HISTORY_MAX, dry_run=True)
    report.count(unreferenced=sum(left.rows.values()))
    return report


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


def _verify_accounts(reader: Reader, app: int, report: Report) -> None:
    """What the account of the app rests on: marks of processes, commit records, account rows."""
    found = watermarks.read(reader, app)
    for process, known in found.items():
        if known.damaged:
            report.add(DAMAGED, "marks", keys.mark(app, process), f"of process {process}: {known.damaged}")
    report.count(rows=len(found))
    shards = epochs.read(reader, app).all(app)
    waiting = ((w.key.to_bytes(), w.cell) for w in commit_records.scan(reader, app, list(shards)))
    accounts = (
        (key, row.get(commit_records.COLUMN, b"")) for key, row in reader.scan("ledger", *keys.ledger_range(app))
    )
    for table, kind, rows in (("pending", blocks.PENDING, waiting), ("ledger", blocks.LEDGER, accounts)):
        for key, raw in rows:
            report.count(rows=1)
            try:
                commit_records.decode(raw, kind)
            except CorruptBlock as error:
                report.add(DAMAGED, table, key, str(error))


def _verify_day(reader: Reader, app: int, day: int, value: Manifest, report: Report) -> None:
    """Everything a day's manifest names, in force or in history, but for samples and hours that have expired."""
    for (shard, hour), entry in value.entries.items():
        if value.seal(hour) < SEALED:
            _verify_unit(reader, HourShardData(shard, app, hour), entry, report)
    for shard, pack in value.hours.items():
        if EXPIRED not in value.seals.values():
            _verify_pack(reader, Place("hours", app, shard, day, day * DAY_HOURS), pack, report)


def _verify_unit(reader: Reader, unit: HourShardData, entry: Entry, report: Report) -> None:
    history = [former.state for former in entry.history]
    for generation in {g: None for state in [entry.state, *history] for g in state.generations}:
        _verify_generation(reader, unit, generation, report)
    for replay in {r for state in [entry.state, *history] for r in state.replay}:
        key = keys.LogKey(unit.shard, unit.app, unit.hour, replay.ingest_ms, replay.batch).to_bytes()
        _verify_row(reader, "log", key, LogBlock.from_cells, report)


def _verify_generation(reader: Reader, unit: HourShardData, generation: Generation, report: Report) -> None:
    made = _directory(reader, unit, generation, report)
    if made is None:
        return
    place = unit.shard, unit.hour, generation.number
    names = purge.pages_of(unit.app, place, made)
    for key in names["chunks"]:
        _verify_row(reader, "chunks", key, lambda row: ChunkPage.from_bytes(row[generations.COLUMN]), report)
    for key in names["timelines"]:
        _verify_row(reader, "timelines", key, lambda row: TimelinesPage.from_bytes(row[generations.COLUMN]), report)
    start = keys.timeline(unit.shard, unit.app, unit.hour, generation.number, 0)
    stop = keys.timeline(unit.shard, unit.app, unit.hour, generation.number, 0xFFFF) + b"\0"
    for key, _ in reader.scan("timelines", start, stop, keys_only=True):
        if key not in names["timelines"]:
            report.add(UNLISTED, "timelines", key, "a page that its directory does not name")
    for metric in made.pages:
        start = keys.chunk(unit.shard, unit.app, metric, unit.hour, generation.number, 0)
        stop = keys.chunk(unit.shard, unit.app, metric, unit.hour, generation.number, 0xFFFF) + b"\0"
        for key, _ in reader.scan("chunks", start, stop, keys_only=True):
            if key not in names["chunks"]:
                report.add(UNLISTED, "chunks", key, "a page that its directory does not name")


def _directory(reader: Reader, unit: HourShardData, generation: Generation, report: Report) -> Inputs | None:
    key = generations.inputs_key(unit, generation)
    if not _verify_row(reader, "inputs", key, lambda row: generations.decode_inputs(row[generations.COLUMN]), report):
        return None
    return generations.read_inputs(reader, unit, generation)


def _verify_pack(reader: Reader, place: Place, pack: Hours | Days, report: Report) -> None:
    made = _directory(reader, place.unit, pack.generation, report)
    for metric, pages in made.pages.items() if made else ():
        for page in pages:
            key = place.key(pack.generation.number, metric, page)
            _verify_row(reader, place.table, key, rollup_rows.decode_row, report)


def _verify_row(
    reader: Reader, table: str, key: bytes, decode: Callable[[dict[bytes, bytes]], object], report: Report
) -> bool:
    [row] = reader.get(table, [key])
    report.count(rows=1)
    if row is None:
        report.add(LOST, table, key, "a row that a manifest names is not there")
        return False
    try:
        decode(row)
    except (CorruptBlock, KeyError) as error:
        report.add(DAMAGED, table, key, str(error))
        return False
    return True


# --- hours ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Checked:
    """A recount of one hour or day: what is off; ``usable``: the level below could be read whole."""

    differences: tuple[recount.Difference, ...] = ()
    trouble: str = ""
    usable: bool = True

    @property
    def text(self) -> str:
        """For the report."""
        more = len(self.differences) - _SHOWN
        told = "; ".join(map(str, self.differences[:_SHOWN]))
        return self.trouble or told + (f"; {more} more" if more > 0 else "")


def hour_check(reader: Reader, app: int, shard: int, hour: int, value: Manifest, lens: Visibility) -> Checked:
    """Recount one hour in force from its samples. ``lens``: what its hours leave out, as the manifest says."""
    pack, entry = value.hours[shard], value.entry(shard, hour)
    task = UnitTask(app, shard, hour, Kind.FULL, entry.state.generations, entry.state.replay, (), 0, hours=False)
    try:
        pieces = source.read_unit(reader, task).pieces
    except _TROUBLE as trouble:
        return Checked(trouble=f"its samples cannot be read: {trouble}", usable=False)
    spread = epochs.read(reader, app)
    place = Place("hours", app, shard, hour // DAY_HOURS, hour // DAY_HOURS * DAY_HOURS)
    try:
        metrics, stored = _stored(reader, place, pack.generation, hour)
    except _TROUBLE as trouble:
        return Checked(trouble=f"its hours cannot be read: {trouble}")
    for i, piece in enumerate(pieces):
        left = epochs.abandoned(spread, app, shard, piece.metrics)
        pieces[i] = piece if left is None else narrow(piece, ~left)
    left = epochs.abandoned(spread, app, shard, metrics)
    if left is not None:
        metrics, stored = metrics[~left], stored.take(~left)
    return Checked(tuple(recount.differences(metrics, stored, recount.recount(pieces, lens))))


def _stored(reader: Reader, place: Place, generation: Generation, step: int) -> tuple[U64, Aggregates]:
    parts = [(metric, steps.at(step)) for metric, steps in source.read_pack(reader, place, generation)]
    parts = [(metric, rows) for metric, rows in parts if len(rows)]
    metrics = np.repeat(np.array([m for m, _ in parts], np.uint64), [len(rows) for _, rows in parts])
    return metrics, side_by_side([rows for _, rows in parts]) if parts else Aggregates.empty()


def _check_hours(
    store: Backend, app: int, value: Manifest, hours: Sequence[int], report: Report
) -> list[tuple[int, int, Checked]]:
    """(shard, hour, what is off) of the hours in force that are wrong."""
    known = {r.number: r for r in retractions.read(store, app)}
    chosen = Chosen(store)
    found = []
    for shard, hour in sorted(place for place in value.entries if place[1] in hours and value.seal(place[1]) < SEALED):
        of = value.hours[shard].hours.get(hour) if shard in value.hours else None
        if of is None or of.inputs != fingerprint(value.entry(shard, hour).state):
            report.count(stale=1)
            continue
        checked = _with_lens(store, app, shard, hour, value, known, of.retractions, chosen)
        report.count(hours=1)
        if checked.differences or checked.trouble:
            found.append((shard, hour, checked))
    for shard, hour, checked in found:
        key = keys.inputs(shard, app, hour // DAY_HOURS * DAY_HOURS, value.hours[shard].generation.number)
        kind = DIFFERS if checked.differences else UNKNOWN
        report.add(kind, "hours", key, f"hour {hour}: {checked.text}")
    return found


def _with_lens(
    reader: Reader,
    app: int,
    shard: int,
    hour: int,
    value: Manifest,
    known: Mapping[int, Retraction],
    packed: bytes,
    chosen: Chosen,
) -> Checked:
    numbers = retractions.numbers(packed)
    if not numbers <= known.keys():
        return Checked(trouble=f"its hours leave out retractions nobody knows: {sorted(numbers - known.keys())}")
    lens = Visibility(tuple(known[n] for n in sorted(numbers)), chosen.of(app))
    return hour_check(reader, app, shard, hour, value, lens)


def _drop_hours(
    store: Backend,
    app: int,
    day: int,
    value: Manifest,
    wrong: Sequence[tuple[int, int, Checked]],
    report: Report,
    now_ms: int,
) -> None:
    """Take wrong hours out of force, where samples are there to answer: readers count them anew at once."""
    gone = {(shard, hour) for shard, hour, checked in wrong if checked.usable}
    hours = {
        shard: msgspec.structs.replace(pack, hours={s: of for s, of in pack.hours.items() if (shard, s) not in gone})
        for shard, pack in value.hours.items()
    }
    nonce = random_u64()
    after = Manifest(nonce, nonce, value.entries, hours, value.seals)
    key = keys.manifest(app, day)
    cell = cells.read_cell(store, "manifest", key)
    if not gone or manifest.decode(cell) != value:
        return  # a run has been here: the next check looks again
    if cells.swap(store, key, cell, manifest.encode(after), cells.holds(nonce))[0]:
        agenda.mark(store, app, [day], now_ms)
        for shard, hour in gone:
            pack = keys.inputs(shard, app, day * DAY_HOURS, value.hours[shard].generation.number)
            _repaired(report, "hours", pack, f"hour {hour}:")


def _repaired(report: Report, table: str, key: bytes, text: str) -> None:
    for i, finding in enumerate(report.findings):
        if (finding.table, finding.key) == (table, key) and finding.text.startswith(text):
            report.findings[i] = Finding(finding.kind, table, key, finding.text, repaired=True)


# --- days -------------------------------------------------------------------------------------------------------------


def day_check(reader: Reader, app: int, shard: int, day: int, value: Manifest, days: Days) -> Checked:
    """Recount one day in force from its hours in force."""
    month = month_of(day)
    first = first_day_of(month) * DAY_HOURS
    hours = [hour for hour, _ in manifest.hours_of(value, shard)]
    hour_rows = Place("hours", app, shard, day, day * DAY_HOURS)
    try:
        parts = [_stored(reader, hour_rows, value.hours[shard].generation, hour) for hour in hours]
    except _TROUBLE as trouble:
        return Checked(trouble=f"its hours cannot be read: {trouble}", usable=False)
    try:
        metrics, stored = _stored(reader, Place("days", app, shard, month, first), days.generation, day)
    except _TROUBLE as trouble:
        return Checked(trouble=f"its days cannot be read: {trouble}")
    return Checked(tuple(recount.differences(metrics, stored, recount.rejoin(parts))))


def _exact_days(day: int, value: Manifest, months: Mapping[int, Month], report: Report) -> Iterator[tuple[int, Days]]:
    """Shards whose day is made of the hours in force."""
    month = months.get(month_of(day), Month())
    for shard, days in month.days.items():
        hour_rows = value.hours.get(shard)
        if day not in days.days or hour_rows is None or EXPIRED in value.seals.values():
            continue
        hours = manifest.hours_of(value, shard)
        fresh = all(s in hour_rows.hours and hour_rows.hours[s].inputs == mark for s, mark in hours)
        left_out = retractions.of_day((s, hour_rows.hours[s].retractions) for s, _ in hours if s in hour_rows.hours)
        made = days.days[day]
        if fresh and made.inputs == manifest.day_fingerprint(hours) and made.retractions == left_out:
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
        checked = day_check(store, app, shard, day, value, days)
        report.count(days=1)
        if not (checked.differences or checked.trouble):
            continue
        first = first_day_of(month_of(day)) * DAY_HOURS
        key = keys.inputs(shard, app, first, days.generation.number)
        done = repair and checked.usable and _drop_day(store, app, shard, day, now_ms)
        kind = DIFFERS if checked.differences else UNKNOWN
        report.add(kind, "days", key, f"day {day}: {checked.text}", repaired=done)


def _drop_day(store: Backend, app: int, shard: int, day: int, now_ms: int) -> bool:
    """Take a wrong day out of force: hours answer for it at once."""
    key = keys.manifest_month(app, month_of(day))
    cell = cells.read_cell(store, "manifest", key)
    now = manifest.decode_month(cell)
    left = {d: of for d, of in now.days[shard].days.items() if d != day}
    after = Month(random_u64(), {**now.days, shard: msgspec.structs.replace(now.days[shard], days=left)})
    if not store.check_and_put("manifest", key, cells.COLUMN, cell, manifest.encode_month(after)):
        return False
    agenda.mark(store, app, [day], now_ms)
    return True
