"""Claims about when retention is over: by whole days, tier by tier, and what was begun is finished."""

import pytest

from rollups.decide.retention import Due, Keep, due
from spm.limits import DAY_HOURS, HOUR_MS
from spm.store.manifest import (
    EXPIRED,
    OPEN,
    SEALED,
    SEALING,
    DayInputs,
    Days,
    Entry,
    Generation,
    Manifest,
    Month,
    State,
)
from tests.model.world import DAY, START

DAY_MS = DAY_HOURS * HOUR_MS
HOUR = DAY * DAY_HOURS
HOURS = range(HOUR, HOUR + DAY_HOURS)
LATER = START + 3 * DAY_MS
HELD = {(1, HOUR): Entry(State((Generation(7),), ()))}
FOUND = {DAY // 30: Month(1, {1: Days(Generation(9), {DAY: DayInputs(b"x")})})}


def value(seal: int = OPEN, entries: bool = True) -> Manifest:
    """A manifest with all hours in one state."""
    seals = dict.fromkeys(HOURS, seal) if seal else {}
    return Manifest(1, 0, HELD if entries else {}, {}, seals)


END = START + DAY_MS
WHEN = {
    "an open day whose samples' time is over is sealed": (Keep(2), END + 2 * DAY_MS, value(), "seal"),
    "a millisecond before it is not": (Keep(2), END + 2 * DAY_MS - 1, value(), ""),
    "samples for ever are never sealed": (Keep(None), END + 9_999 * DAY_MS, value(), ""),
    "a day without data has nothing to seal": (Keep(2), END + 9 * DAY_MS, value(entries=False), ""),
    "what was begun is finished, whatever retention says now": (Keep(None), END, value(SEALING), "seal"),
    "a sealed day expires after its hours' time": (Keep(2, 3), END + 3 * DAY_MS, value(SEALED), "expire"),
    "and not before": (Keep(2, 3), END + 3 * DAY_MS - 1, value(SEALED), ""),
    "an open day does not expire": (Keep(2, 2), END + 3 * DAY_MS, value(), "seal"),
    "an expired day goes after its time": (Keep(2, 3, 4), END + 4 * DAY_MS, value(EXPIRED), "drop"),
    "days for ever stay": (Keep(2, 3), END + 999 * DAY_MS, value(EXPIRED), ""),
    "a day that is sealed only does not go": (Keep(2, 4, 4), END + 4 * DAY_MS, value(SEALED), "expire"),
}


@pytest.mark.parametrize("case", WHEN, ids=lambda case: str(case).replace(" ", "-"))
def test_what_is_due_follows_from_ages_and_states(case: str) -> None:
    keep, now_ms, held, wanted = WHEN[case]
    found = due(keep, now_ms, {DAY: held}, FOUND)
    empty = Due({}, (), {}, ())
    what = {
        "": empty,
        "seal": Due({DAY: tuple(HOURS)}, (), {}, ()),
        "expire": Due({}, (DAY,), {}, ()),
        "drop": Due({}, (), {DAY // 30: (DAY,)}, ()),
    }
    assert found == what[wanted]


def test_a_day_that_no_month_names_any_more_is_forgotten() -> None:
    assert due(Keep(), LATER, {DAY: value(EXPIRED)}, {}).forget == (DAY,)
    assert due(Keep(), LATER, {DAY: value(EXPIRED)}, FOUND).forget == ()
    assert due(Keep(), LATER, {DAY: value(EXPIRED, entries=False)}, {}).forget == ()
