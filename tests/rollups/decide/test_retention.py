"""Claims about when retention is over: by entire days, resolution by resolution; a sealing that began is finished."""

import pytest

from rollups.decide.retention import RetentionPeriods, RetentionPlan, plan_retention
from spm.limits import DAY_HOURS, HOUR_MS
from spm.store.manifest import (
    EXPIRED,
    OPEN,
    SEALED,
    SEALING,
    DayInputs,
    DayPack,
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
ENTRIES = {(1, HOUR): Entry(State((Generation(7),), ()))}
MONTHS = {DAY // 30: Month(1, {1: DayPack(Generation(9), {DAY: DayInputs(b"x")})})}


def value(seal: int = OPEN, entries: bool = True) -> Manifest:
    """A manifest with all hours in one state."""
    seals = dict.fromkeys(HOURS, seal) if seal else {}
    return Manifest(1, 0, ENTRIES if entries else {}, {}, seals)


END = START + DAY_MS
WHEN = {
    "an open day whose samples' time is over is sealed": (RetentionPeriods(2), END + 2 * DAY_MS, value(), "seal"),
    "a millisecond before it is not": (RetentionPeriods(2), END + 2 * DAY_MS - 1, value(), ""),
    "samples for ever are never sealed": (RetentionPeriods(None), END + 9_999 * DAY_MS, value(), ""),
    "a day without data has nothing to seal": (RetentionPeriods(2), END + 9 * DAY_MS, value(entries=False), ""),
    "what was begun is finished, whatever retention says now": (RetentionPeriods(None), END, value(SEALING), "seal"),
    "a sealed day expires after its hours' time": (RetentionPeriods(2, 3), END + 3 * DAY_MS, value(SEALED), "expire"),
    "and not before": (RetentionPeriods(2, 3), END + 3 * DAY_MS - 1, value(SEALED), ""),
    "an open day does not expire": (RetentionPeriods(2, 2), END + 3 * DAY_MS, value(), "seal"),
    "an expired day goes after its time": (RetentionPeriods(2, 3, 4), END + 4 * DAY_MS, value(EXPIRED), "drop"),
    "days for ever stay": (RetentionPeriods(2, 3), END + 999 * DAY_MS, value(EXPIRED), ""),
    "a day that is sealed only does not go": (RetentionPeriods(2, 4, 4), END + 4 * DAY_MS, value(SEALED), "expire"),
}


@pytest.mark.parametrize("case", WHEN, ids=lambda case: str(case).replace(" ", "-"))
def test_what_is_due_follows_from_ages_and_states(case: str) -> None:
    keep, now_ms, value, wanted = WHEN[case]
    plan = plan_retention(keep, now_ms, {DAY: value}, MONTHS)
    empty = RetentionPlan({}, (), {}, ())
    what = {
        "": empty,
        "seal": RetentionPlan({DAY: tuple(HOURS)}, (), {}, ()),
        "expire": RetentionPlan({}, (DAY,), {}, ()),
        "drop": RetentionPlan({}, (), {DAY // 30: (DAY,)}, ()),
    }
    assert plan == what[wanted]


def test_a_day_that_no_month_names_any_more_is_forgotten() -> None:
    assert plan_retention(RetentionPeriods(), LATER, {DAY: value(EXPIRED)}, {}).forget_days == (DAY,)
    assert plan_retention(RetentionPeriods(), LATER, {DAY: value(EXPIRED)}, MONTHS).forget_days == ()
    assert plan_retention(RetentionPeriods(), LATER, {DAY: value(EXPIRED, entries=False)}, {}).forget_days == ()
