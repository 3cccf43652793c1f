"""Moves an app's low-water marks forward, and adopts settled stamps of processes that are gone (PROTOCOL 26).

A process is gone that has announced nothing for ``PROCESS_GONE_S``.

Enter by ``advance_watermarks``; the caller passes the time. A watermark moves to the newest announcement of which all
stamps are settled, in one check-and-put with the dead stamps among them. Any number of keepers may work at once, be
killed, or lose their answers: a cell that another keeper has changed meanwhile stays as it is, and the next round goes
on from there.

Work is bounded, however much there is. Announcements and processes of the last quarter of an hour are read every time.
The older a process is that is stuck or gone, the more seldom it is looked for further back (``_chance``: by hashing the
time, so that nothing need be remembered).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from ingest.accounting.passed_batches import PassedBatches
from spm import limits
from spm.store import keys
from spm.store.backends.base import Backend
from spm.store.ledger import watermarks
from spm.store.ledger.commit_columns import CommitCellCache
from spm.store.ledger.outcomes import Outcomes, read_outcomes
from spm.store.ledger.watermarks import AdoptionRecord, Announcement, ProcessWatermarks, Watermark, pack_place

_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # of splitmix64
_DOUBLINGS = 20  # of a span of minutes: four years
_NEAR_DOUBLINGS = 10  # a day and a half: for processes that died unannounced while no keeper was at work


@dataclass(frozen=True, slots=True)
class KeepResult:
    """What was done for an app. ``damaged``: unreadable rows, which may hold watermarks back."""

    moved: int = 0
    adopted: int = 0
    waiting: int = 0
    damaged: int = 0

    def plus(self, other: "KeepResult") -> "KeepResult":
        """Return the sum of both."""
        return KeepResult(
            self.moved + other.moved,
            self.adopted + other.adopted,
            self.waiting + other.waiting,
            self.damaged + other.damaged,
        )


@dataclass(frozen=True, slots=True)
class ReadSpan:
    """A span of ledger rows to be read, by the minute of their batches."""

    since_ms: int
    until_ms: int | None  # None: no end


def advance_watermarks(
    store: Backend,
    app: int,
    now_ms: int,
    *,
    cells: CommitCellCache | None = None,
    passed: PassedBatches | None = None,
) -> KeepResult:
    """Do one round for an app. Raises ``StoreUnavailable`` when the store does not answer: repeat it.

    ``passed`` remembers batches from round to round of which nothing need be read any more.
    """
    processes = watermarks.read(store, app)
    open_ = {number: p for number, p in processes.items() if not (p.finished or p.damaged)}
    result = KeepResult(
        waiting=sum(not p.settled for p in open_.values()), damaged=sum(bool(p.damaged) for p in processes.values())
    )
    beyond = {number: pack_place(p.watermark.place) if number in open_ else keys.U64 for number, p in processes.items()}
    batches = None
    if passed is not None and not result.damaged:
        batches = passed.of_app(store, app, {number: pack_place(p.watermark.place) for number, p in processes.items()})
    for place, span in enumerate(plan_reads(open_, now_ms)):
        until = keys.U32 if span.until_ms is None else max(0, span.until_ms // 60_000)
        since = min(until, max(0, span.since_ms // 60_000))
        near = batches if place == 0 else None  # ``beyond`` says of later spans more than is true of watermarks
        outcomes = read_outcomes(
            store, app, since, until, beyond=beyond, cells=cells, rows_max=limits.KEEP_ROWS_MAX, batches=near
        )
        minutes = outcomes.ms // 60_000  # ledger rows of dead stamps lie in the minute of the stamp: others are unread
        within = (minutes >= since) & (minutes <= until)
        outcomes = replace(outcomes, are_settled=outcomes.are_settled & within)
        for number in np.unique(outcomes.process).tolist():
            process = open_.get(number) or ProcessWatermarks(number, watermark=Watermark(number))
            done = _advance_process(store, app, process, _of_process(outcomes, number), now_ms)
            if done.moved or done.adopted:  # its new state is read by the next round
                beyond[number] = keys.U64
            result = result.plus(done)
        result = result.plus(KeepResult(damaged=outcomes.damaged))
    if passed is not None and batches is not None:
        passed.end(app, batches)
    return result


# --- where to read ----------------------------------------------------------------------------------------------------


def plan_reads(processes: Mapping[int, ProcessWatermarks], now_ms: int) -> list[ReadSpan]:
    """Return the spans to be read now: one for all that is recent, and a few for what is old and due.

    The first span also covers processes that died unannounced; the further it goes back, the more seldom it does.
    """
    tick = now_ms // (limits.KEEP_EVERY_S * 1000)
    near = [p for p in processes.values() if now_ms - _floor(p) <= limits.KEEP_NEAR_MS]
    stuck = [p for p in near if any(now_ms - a.at_ms > limits.KEEP_STUCK_MS for a in p.open_announcements()[:1])]
    starts = [now_ms - (limits.BATCH_SPAN_MS << min(_NEAR_DOUBLINGS, _chance(tick, 0))), *map(_floor, near)]
    starts += [max(p.watermark.ms, now_ms - limits.KEEP_STUCK_BACK_MS) for p in stuck]
    spans = [ReadSpan(min(starts) - limits.BATCH_SPAN_MS, None)]
    far = [number for number, p in processes.items() if now_ms - _floor(p) > limits.KEEP_NEAR_MS]
    due = sorted((-_chance(tick, n), n) for n in far if _chance(tick, n) >= _rarity(processes[n], now_ms))
    for _, number in due[: limits.KEEP_FAR_AT_ONCE]:
        process, further = processes[number], min(_DOUBLINGS, _chance(tick, number + 1))
        floor, length = _floor(process), 2 * limits.KEEP_NEAR_MS << further
        back = max(process.watermark.ms, floor - limits.KEEP_STUCK_BACK_MS) if further else floor
        spans.append(ReadSpan(min(back, floor - (limits.BATCH_SPAN_MS << further)), floor + length))
    return spans


def _floor(process: ProcessWatermarks) -> int:
    """Return from where on its unsettled stamps lie: a little before the first open announcement."""
    waiting = process.open_announcements()
    if waiting or process.announcements:
        return waiting[0].ms if waiting else process.watermark.ms
    return int(process.adopted_stamps.min()) >> 16 if len(process.adopted_stamps) else process.watermark.ms


def _rarity(process: ProcessWatermarks, now_ms: int) -> int:
    """Return the chance below which an old process is not read: once in 2^n rounds."""
    age = (now_ms - _floor(process)) // limits.KEEP_NEAR_MS
    alive = not process.settled and not process.gone(now_ms)  # it catches up after an outage
    return max(0, age.bit_length() - 5) if alive else age.bit_length() + 1


def _chance(tick: int, process: int) -> int:
    """Return how often 2 divides a hash of both: n or more once in 2^n ticks, independent of everything else."""
    x = (tick * 0x9E3779B97F4A7C15 + process * 0xD1B54A32D192ED03 + 1) & keys.U64
    x = ((x ^ x >> 30) * _MIX[0]) & keys.U64
    x = ((x ^ x >> 27) * _MIX[1]) & keys.U64
    x ^= x >> 31
    return (x & -x).bit_length() - 1 if x else 64


# --- one process ------------------------------------------------------------------------------------------------------


def _of_process(outcomes: Outcomes, process: int) -> Outcomes:
    """Return the stamps of one process, in their order."""
    start, stop = np.searchsorted(outcomes.process, [process, process + 1])
    return outcomes.select(slice(start, stop))


def _advance_process(
    store: Backend, app: int, process: ProcessWatermarks, outcomes: Outcomes, now_ms: int
) -> KeepResult:
    """Move the watermark as far as it goes; if it does not, and the process is gone, adopt its stamps."""
    announcement = reachable_announcement(process, outcomes)
    if announcement is not None:
        return KeepResult(moved=_move(store, app, process, announcement, outcomes))
    if process.announcements:
        silent = process.gone(now_ms)
    else:
        silent = now_ms - int(outcomes.ms[-1]) > limits.PROCESS_GONE_S * 1000
    if silent and len(process.adoptions) < limits.ADOPTIONS_MAX:
        return KeepResult(adopted=_adopt(store, app, process, outcomes))
    return KeepResult()


def reachable_announcement(process: ProcessWatermarks, outcomes: Outcomes) -> Announcement | None:
    """Return the newest announcement above the watermark of which every stamp is settled, if there is one."""
    stamps, settled_counts = outcomes.stamps, np.cumsum(outcomes.are_settled)
    for announcement in reversed(process.open_announcements()):
        below = int(np.searchsorted(stamps, np.uint64(pack_place(announcement.place)), side="right"))
        settled = int(settled_counts[below - 1]) if below else 0
        if settled == below and settled >= announcement.messages - process.messages:
            return announcement
    return None


def _move(store: Backend, app: int, process: ProcessWatermarks, announcement: Announcement, outcomes: Outcomes) -> bool:
    """Move the watermark to an announcement. Stamps that adoption records have counted are not counted again."""
    place = np.uint64(pack_place(announcement.place))
    passed = outcomes.select(outcomes.stamps <= place)
    fresh = passed.select(~np.isin(passed.stamps, process.adopted_stamps))
    before = process.watermark.totals.messages + int((process.adopted_stamps <= place).sum())
    totals = msgspec.structs.replace(fresh.totals(), messages=announcement.messages - before)
    dead_stamps = passed.stamps[passed.are_dead]
    return watermarks.move(store, app, process, announcement, totals=totals, dead_stamps=dead_stamps)


def _adopt(store: Backend, app: int, process: ProcessWatermarks, outcomes: Outcomes) -> int:
    """Record settled stamps that a process left behind; return how many of its stamps are adopted by that."""
    fresh = outcomes.select(outcomes.are_settled & ~np.isin(outcomes.stamps, process.adopted_stamps))
    if not len(fresh):
        return 0
    part = fresh.select(np.arange(len(fresh)) < limits.STAMPS_PER_CELL)
    stamps = part.stamps
    record = AdoptionRecord(stamps[part.are_stored], stamps[~part.are_stored], part.totals())
    recorded = watermarks.adopt(store, app, process, record)
    return int(part.are_stored.sum()) if recorded else 0
