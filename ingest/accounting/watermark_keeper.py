"""Moves the low-water marks of an app forward, and names stragglers of processes that are gone (rule 26).

Enter by ``keep``; whoever calls says what time it is. A mark moves to the newest announcement of which all stamps are
settled, in one check-and-put with the dead ones among them. Any number of keepers may work at once, be killed, or have
their answers lost: a cell that another has changed meanwhile stays as it is, and the next look goes on from there.

Work is bounded, whatever is there. Announcements and processes of the last quarter of an hour are looked at every time;
a process that is stuck or gone is looked for further back the more seldom, the older it is (``_chance``: by hashing the
time, so that nothing need be remembered).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from spm import limits
from spm.store import keys
from spm.store.backends.base import Backend
from spm.store.ledger import watermarks
from spm.store.ledger.commit_columns import CommitCellCache
from spm.store.ledger.outcomes import Outcomes, read_outcomes
from spm.store.ledger.watermarks import AdoptionRecord, Announcement, ProcessWatermarks, Watermark, packed

_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # of splitmix64
_DOUBLINGS = 20  # of a span of minutes: four years
_NEAR_DOUBLINGS = 10  # a day and a half: for processes that died before their first word while no keeper was at work


@dataclass(frozen=True, slots=True)
class Kept:
    """What one look at an app has done. ``damaged``: rows nobody can read, which may hold marks back."""

    moved: int = 0
    adopted: int = 0
    waiting: int = 0
    damaged: int = 0

    def plus(self, other: "Kept") -> "Kept":
        """Both together."""
        return Kept(
            self.moved + other.moved,
            self.adopted + other.adopted,
            self.waiting + other.waiting,
            self.damaged + other.damaged,
        )


@dataclass(frozen=True, slots=True)
class Look:
    """A span of account rows to be read, by the minute of their batches."""

    since_ms: int
    until_ms: int | None  # None: no end


def keep(store: Backend, app: int, now_ms: int, *, cells: CommitCellCache | None = None) -> Kept:
    """One look at an app. Raises ``StoreUnavailable`` when the store does not answer: look again."""
    found = watermarks.read(store, app)
    open_ = {p: m for p, m in found.items() if not (m.finished or m.damaged)}
    kept = Kept(
        waiting=sum(not m.settled for m in open_.values()), damaged=sum(bool(m.damaged) for m in found.values())
    )
    beyond = {p: packed(m.held.place) if p in open_ else keys.U64 for p, m in found.items()}
    for look in looks(open_, now_ms):
        until = keys.U32 if look.until_ms is None else max(0, look.until_ms // 60_000)
        since = min(until, max(0, look.since_ms // 60_000))
        outcome = read_outcomes(store, app, since, until, beyond=beyond, cells=cells, rows_max=limits.KEEP_ROWS_MAX)
        minutes = outcome.ms // 60_000  # accounts of what died lie in the minute of their stamp: others are unread
        decided = (minutes >= since) & (minutes <= until)
        outcome = replace(outcome, whole=outcome.whole & decided)
        for process in np.unique(outcome.process).tolist():
            mine = _of(outcome, process)
            m = open_.get(process) or ProcessWatermarks(process, held=Watermark(process))
            done = _keep_one(store, app, m, mine, now_ms)
            if done.moved or done.adopted:  # what it is now is seen by the next look
                beyond[process] = keys.U64
            kept = kept.plus(done)
        kept = kept.plus(Kept(damaged=outcome.damaged))
    return kept


# --- where to look ----------------------------------------------------------------------------------------------------


def looks(found: Mapping[int, ProcessWatermarks], now_ms: int) -> list[Look]:
    """The spans to be read now: one for all that is recent, and a few for what is old and due.

    The first also finds processes that died before their first word; it goes back the further, the more seldom.
    """
    tick = now_ms // (limits.KEEP_EVERY_S * 1000)
    near = [m for m in found.values() if now_ms - _floor(m) <= limits.KEEP_NEAR_MS]
    stuck = [m for m in near if any(now_ms - word.at_ms > limits.KEEP_STUCK_MS for word in m.waiting()[:1])]
    starts = [now_ms - (limits.KEEP_SLACK_MS << min(_NEAR_DOUBLINGS, _chance(tick, 0))), *map(_floor, near)]
    starts += [max(m.held.ms, now_ms - limits.KEEP_STUCK_BACK_MS) for m in stuck]
    made = [Look(min(starts) - limits.KEEP_SLACK_MS, None)]
    far = [p for p, m in found.items() if now_ms - _floor(m) > limits.KEEP_NEAR_MS]
    due = sorted((-_chance(tick, p), p) for p in far if _chance(tick, p) >= _rarity(found[p], now_ms))
    for _, process in due[: limits.KEEP_FAR_AT_ONCE]:
        m, further = found[process], min(_DOUBLINGS, _chance(tick, process + 1))
        floor, span = _floor(m), 2 * limits.KEEP_NEAR_MS << further
        back = max(m.held.ms, floor - limits.KEEP_STUCK_BACK_MS) if further else floor
        made.append(Look(min(back, floor - (limits.KEEP_SLACK_MS << further)), floor + span))
    return made


def _floor(m: ProcessWatermarks) -> int:
    """From where on a process' unsettled stamps lie: a little before the first announcement that waits."""
    waiting = m.waiting()
    if waiting or m.words:
        return waiting[0].ms if waiting else m.held.ms
    return int(m.named.min()) >> 16 if len(m.named) else m.held.ms


def _rarity(m: ProcessWatermarks, now_ms: int) -> int:
    """The chance below which an old process is not looked at: once in 2^n looks."""
    age = (now_ms - _floor(m)) // limits.KEEP_NEAR_MS
    alive = not m.settled and not m.gone(now_ms)  # it catches up after an outage
    return max(0, age.bit_length() - 5) if alive else age.bit_length() + 1


def _chance(tick: int, process: int) -> int:
    """How often 2 divides a hash of both: n or more once in 2^n ticks, and in no step with anything else."""
    x = (tick * 0x9E3779B97F4A7C15 + process * 0xD1B54A32D192ED03 + 1) & keys.U64
    x = ((x ^ x >> 30) * _MIX[0]) & keys.U64
    x = ((x ^ x >> 27) * _MIX[1]) & keys.U64
    x ^= x >> 31
    return (x & -x).bit_length() - 1 if x else 64


# --- one process ------------------------------------------------------------------------------------------------------


def _of(outcome: Outcomes, process: int) -> Outcomes:
    """The stamps of one process, in their order."""
    start, stop = np.searchsorted(outcome.process, [process, process + 1])
    return outcome.only(slice(start, stop))


def _keep_one(store: Backend, app: int, m: ProcessWatermarks, found: Outcomes, now_ms: int) -> Kept:
    """Move the mark as far as it goes; if it does not, and the process is gone, name its stragglers."""
    word = reached(m, found)
    if word is not None:
        return Kept(moved=_move(store, app, m, word, found))
    silent = m.gone(now_ms) if m.words else now_ms - int(found.ms[-1]) > limits.PROCESS_SILENT_S * 1000
    if silent and len(m.adopted) < limits.ADOPTIONS_MAX:
        return Kept(adopted=_adopt(store, app, m, found))
    return Kept()


def reached(m: ProcessWatermarks, found: Outcomes) -> Announcement | None:
    """The newest announcement above the mark of which every stamp is settled; ``None``: there is none."""
    stamps, done = found.stamps, np.cumsum(found.whole)
    for word in reversed(m.waiting()):
        below = int(np.searchsorted(stamps, np.uint64(packed(word.place)), side="right"))
        whole = int(done[below - 1]) if below else 0
        if whole == below and whole >= word.messages - m.messages:
            return word
    return None


def _move(store: Backend, app: int, m: ProcessWatermarks, word: Announcement, found: Outcomes) -> bool:
    """The mark to an announcement. What records have counted is not counted again."""
    passed = found.only(found.stamps <= np.uint64(packed(word.place)))
    fresh = passed.only(~np.isin(passed.stamps, m.named))
    before = m.held.totals.messages + int((m.named <= np.uint64(packed(word.place))).sum())
    totals = msgspec.structs.replace(fresh.totals(), messages=word.messages - before)
    return watermarks.move(store, app, m, word, totals=totals, out=passed.stamps[passed.lost])


def _adopt(store: Backend, app: int, m: ProcessWatermarks, found: Outcomes) -> int:
    """A record of what a process that is gone has left behind; how many of its stamps are known now."""
    fresh = found.only(found.whole & ~np.isin(found.stamps, m.named))
    if not len(fresh):
        return 0
    part = fresh.only(np.arange(len(fresh)) < limits.STAMPS_PER_CELL)
    stamps = part.stamps
    landed = watermarks.adopt(store, app, m, AdoptionRecord(stamps[part.kept], stamps[~part.kept], part.totals()))
    return int(part.kept.sum()) if landed else 0
