"""Lists the days that full runs of an app have to check, so that their cost follows the work and not the app's age.

It is one cell of `config` per app: up to when closed hours were checked, which retractions the aggregates then left
out, days that were marked as due, and when all days were checked last (a sweep). The agenda is only a hint: readers
find stale aggregates by PROTOCOL 11, and a run sweeps all days once a day. A run that leaves the aggregates of a closed
hour stale (a minor run, a roll back) calls ``mark_due`` after publishing and before it removes the pending records; a
full run calls ``finish`` at its end. Enter by ``days_due``.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress

import msgspec

from spm import limits
from spm.clock import random_u64
from spm.errors import CellContended
from spm.limits import DAY_HOURS, HOUR_MS
from spm.store.backends.base import Backend, Reader
from spm.store.check_and_put import COLUMN, replace_cell
from spm.store.versions import retractions
from spm.store.versions.retractions import Retraction


class Agenda(msgspec.Struct, frozen=True, array_like=True):
    """The cell of an app. ``due_days``: day → (since when, 0 if not urgent; a random id of the mark)."""

    swept_ms: int = 0
    upto_ms: int = 0
    retractions: bytes = b""
    due_days: dict[int, tuple[int, int]] = {}

    def horizon_ms(self, now_ms: int) -> int:
        """The time up to which closed hours have been checked, or are checked by a run at ``now_ms``."""
        return max(self.upto_ms, now_ms)


def name_of(app: int) -> bytes:
    """The key of an app's agenda in `config`."""
    return b"agenda/%d" % app


def read(reader: Reader, app: int) -> Agenda:
    """Reads the app's agenda; if there is none, an empty one, by which every day is checked."""
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


def is_sweep_due(agenda: Agenda, now_ms: int) -> bool:
    """Whether it is time to check every day again."""
    return not agenda.swept_ms or abs(now_ms - agenda.swept_ms) >= limits.ROLL_SWEEP_MS


def days_due(agenda: Agenda, known: Sequence[Retraction], now_ms: int, grace_ms: int) -> list[tuple[int, int]]:
    """Ranges of days, both ends included, that a full run checks besides the days of pending records.

    1. days with hours that have closed since the last full run;
    2. days that were marked;
    3. days in reach of a retraction that was added or undone since.
    """
    ranges = [(day, day) for day in agenda.due_days]
    if now_ms > agenda.upto_ms:
        first, last = ((ms - grace_ms) // HOUR_MS for ms in (agenda.upto_ms, now_ms))
        ranges.append((first // DAY_HOURS, max(first, last - 1) // DAY_HOURS))
    ranges += [days_of(r) for r in known if r.active() != (r.number in retractions.numbers(agenda.retractions))]
    return ranges


def days_of(retraction: Retraction) -> tuple[int, int]:
    """The first and the last day that a retraction can reach."""
    first, last = max(retraction.data_from_ms, 0) // HOUR_MS, retraction.data_to_ms // HOUR_MS
    return first // DAY_HOURS, last // DAY_HOURS


def has_due_days(cell: bytes) -> bool:
    """Whether days are marked in the cell of an app."""
    return bool(_decoded(cell).due_days)


def waiting_since(reader: Reader, app: int) -> int | None:
    """Since when retractions and marked days wait for a full run; ``None``: none do."""
    agenda, known = read(reader, app), retractions.read(reader, app)
    aggregated_with = retractions.numbers(agenda.retractions)
    since = [r.end_ms or r.start_ms for r in known if r.active() != (r.number in aggregated_with)]
    return min(since + [ms for ms, _ in agenda.due_days.values() if ms], default=None)


# --- changing ---------------------------------------------------------------------------------------------------------


def mark_due(store: Backend, app: int, days: Iterable[int], since_ms: int = 0) -> None:
    """Marks days as due; without ``since_ms`` they are not urgent."""
    fresh = {day: (since_ms, random_u64()) for day in days}
    if fresh:
        _change(store, app, lambda now: _bounded(msgspec.structs.replace(now, due_days={**now.due_days, **fresh})))


def finish(
    store: Backend,
    app: int,
    before: Agenda,
    *,
    now_ms: int,
    swept: bool,
    known: Sequence[Retraction],
    remaining: Collection[int],
) -> None:
    """Notes that a full run has done all of ``before`` except the days ``remaining``; later marks of others stay."""
    active = retractions.ids(r for r in known if r.active())
    fresh = {day: (now_ms, random_u64()) for day in remaining}

    def done(now: Agenda) -> Agenda:
        due = {day: mark for day, mark in now.due_days.items() if before.due_days.get(day) != mark}
        return _bounded(Agenda(now_ms if swept else now.swept_ms, now.horizon_ms(now_ms), active, {**due, **fresh}))

    _change(store, app, done)


def reset(store: Backend, app: int) -> None:
    """Makes the next full run check every day."""
    _change(store, app, lambda now: msgspec.structs.replace(now, swept_ms=0))


def _bounded(agenda: Agenda) -> Agenda:
    if len(agenda.due_days) <= limits.AGENDA_DAYS_MAX:
        return agenda
    return msgspec.structs.replace(agenda, swept_ms=0, due_days={})


def _change(store: Backend, app: int, change: Callable[[Agenda], Agenda]) -> None:
    """Changes the cell; if others keep changing it, gives up: the next sweep finds what the change would have noted."""

    def changed(row: Mapping[bytes, bytes]) -> tuple[bytes | None, None]:
        present = _decoded(row.get(COLUMN))
        value = change(present)
        return None if value == present and row else msgspec.msgpack.encode(value), None

    error = f"the agenda of app {app} kept changing"
    with suppress(CellContended):
        replace_cell(store, "config", name_of(app), changed, error=error, retry_lost_answers=True)
