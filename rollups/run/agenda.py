"""What is left for full runs of an app to look at, so that their cost follows the work and not the age of the table.

One cell of `config` per app: up to when closed hours were looked at, which retractions the hours then left out, days
that somebody left due, when all days were looked at last. It is a hint and carries no truth: readers find what is stale
by rule 11, and a run that finds the last full look a day old looks at every day again. Whoever leaves hours stale in a
closed hour (a minor run, a roll back) calls ``mark`` after its flip and before it forgets the pending cells; a full run
calls ``finish`` at its end. ``days_due`` decides; enter there.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec

from spm import limits
from spm.clock import random_u64
from spm.errors import StoreUnavailable
from spm.limits import DAY_HOURS, HOUR_MS
from spm.store.backends.base import Backend, Reader
from spm.store.versions import retractions
from spm.store.versions.retractions import Retraction

COLUMN = b"v"
_TRIES = 8  # of a check-and-put that others keep winning; after that the next full look finds it


class Agenda(msgspec.Struct, frozen=True, array_like=True):
    """An app's cell. ``due``: day → (since when, 0: no hurry; a mark of its own)."""

    swept_ms: int = 0
    upto_ms: int = 0
    retractions: bytes = b""
    due: dict[int, tuple[int, int]] = {}

    def horizon(self, now_ms: int) -> int:
        """Hours closed by then have been looked at, or are being looked at now."""
        return max(self.upto_ms, now_ms)


def name_of(app: int) -> bytes:
    """The row of an app's agenda."""
    return b"agenda/%d" % app


def read(reader: Reader, app: int) -> Agenda:
    """The app's agenda; an empty one, which asks for a look at every day, where there is none."""
    return _decoded(_cell(reader, app))


def _cell(reader: Reader, app: int) -> bytes | None:
    [row] = reader.get("config", [name_of(app)], [COLUMN])
    return row[COLUMN] if row else None


def _decoded(cell: bytes | None) -> Agenda:
    try:
        return msgspec.msgpack.decode(cell, type=Agenda) if cell else Agenda()
    except msgspec.DecodeError:
        return Agenda()


# --- deciding ---------------------------------------------------------------------------------------------------------


def sweep_due(agenda: Agenda, now_ms: int) -> bool:
    """Whether it is time to look at every day again."""
    return not agenda.swept_ms or abs(now_ms - agenda.swept_ms) >= limits.ROLL_SWEEP_MS


def days_due(agenda: Agenda, found: Sequence[Retraction], now_ms: int, grace_ms: int) -> list[tuple[int, int]]:
    """Ranges of days, both ends included, in which a full run finds what is due beside pending cells.

    1. days with hours that have closed since the last full run;
    2. days that somebody has marked;
    3. days that a retraction reaches which was made or undone since.
    """
    ranges = [(day, day) for day in agenda.due]
    if now_ms > agenda.upto_ms:
        first, last = ((ms - grace_ms) // HOUR_MS for ms in (agenda.upto_ms, now_ms))
        ranges.append((first // DAY_HOURS, max(first, last - 1) // DAY_HOURS))
    ranges += [days_of(r) for r in found if r.active() != (r.number in retractions.numbers(agenda.retractions))]
    return ranges


def days_of(retraction: Retraction) -> tuple[int, int]:
    """The first and the last day that a retraction can reach."""
    first, last = max(retraction.data_from_ms, 0) // HOUR_MS, retraction.data_to_ms // HOUR_MS
    return first // DAY_HOURS, last // DAY_HOURS


def waiting_since(reader: Reader, app: int) -> int | None:
    """Since when something waits for a full run that pending cells and recent days do not tell; ``None``: nothing."""
    agenda, known = read(reader, app), retractions.read(reader, app)
    seen = retractions.numbers(agenda.retractions)
    since = [r.end_ms or r.start_ms for r in known if r.active() != (r.number in seen)]
    return min(since + [ms for ms, _ in agenda.due.values() if ms], default=None)


# --- changing ---------------------------------------------------------------------------------------------------------


def mark(store: Backend, app: int, days: Iterable[int], since_ms: int = 0) -> None:
    """Note days as due; without ``since_ms`` nobody need hurry."""
    fresh = {day: (since_ms, random_u64()) for day in days}
    if fresh:
        _change(store, app, lambda now: _bounded(msgspec.structs.replace(now, due={**now.due, **fresh})))


def finish(
    store: Backend,
    app: int,
    seen: Agenda,
    *,
    now_ms: int,
    swept: bool,
    found: Sequence[Retraction],
    left: Collection[int],
) -> None:
    """A full run has done what it found in ``seen``, but for the days ``left``; what others marked since stays."""
    active = retractions.ids(r for r in found if r.active())
    fresh = {day: (now_ms, random_u64()) for day in left}

    def done(now: Agenda) -> Agenda:
        due = {day: mark for day, mark in now.due.items() if seen.due.get(day) != mark}
        return _bounded(Agenda(now_ms if swept else now.swept_ms, now.horizon(now_ms), active, {**due, **fresh}))

    _change(store, app, done)


def reset(store: Backend, app: int) -> None:
    """Let the next full run look at every day."""
    _change(store, app, lambda now: msgspec.structs.replace(now, swept_ms=0))


def _bounded(agenda: Agenda) -> Agenda:
    if len(agenda.due) <= limits.AGENDA_DAYS_MAX:
        return agenda
    return msgspec.structs.replace(agenda, swept_ms=0, due={})


def _change(store: Backend, app: int, change: Callable[[Agenda], Agenda]) -> None:
    for _ in range(_TRIES):
        cell = _cell(store, app)
        value = change(_decoded(cell))
        if value == _decoded(cell) and cell is not None:
            return
        try:
            if store.check_and_put("config", name_of(app), COLUMN, cell, msgspec.msgpack.encode(value)):
                return
        except StoreUnavailable:
            continue
