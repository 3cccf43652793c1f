"""Claims about hours and days under retractions: right at once, rebuilt by the next run, as before after an undo."""

from collections.abc import Callable

import pytest

from rollups.crash_points import POINTS, ignore_point
from rollups.decide.day_result import LATE, RETRACTED, ROLLED_BACK, UNDONE
from rollups.decide.plan import MergeKind, PlanContext
from rollups.run import agenda
from rollups.run.rollback import roll_back
from spm.limits import HOUR_MS
from spm.store.versions import retractions
from tests.model.world import APP, DAY, FIRST, NEXT_DAY, START, World, days_in_force, whole_day

RUN_POINTS = [*POINTS[: POINTS.index("month published") + 1], "agenda written"]


def filled() -> World:
    """Two sources over three hours, rolled up."""
    world = World()
    for hour in range(3):
        world.send((0, hour * HOUR_MS + 1, 1.0), (1, hour * HOUR_MS + 2, 2.0), source="a")
        world.send((0, hour * HOUR_MS + 3, 4.0), (2, hour * HOUR_MS + 1, 8.0), source="b")
    world.roll()
    return world


def right(world: World) -> None:
    """Samples, hours and days as a reader gets them, whatever lies below."""
    assert world.answer() == world.truth
    assert world.hours() == world.recount()
    assert world.days() == world.model.days()


def exact(world: World) -> None:
    """All of it is right, and nothing but rows of days is needed to answer days."""
    right(world)
    assert days_in_force(world) == whole_day(world)
    assert world.resolutions() == {"day aggregates"}


def due(world: World) -> int:
    """How many hour shards a full run would change."""
    plans = world.driver().plan_app(APP, PlanContext(NEXT_DAY), sweep=True).plans
    assert {unit.kind for plan in plans for unit in plan.hour_shards} <= {MergeKind.RECOUNT}
    return sum(len(plan.hour_shards) for plan in plans)


def test_a_retraction_is_answered_at_once_and_rebuilt_by_the_next_run() -> None:
    world = filled()
    exact(world)
    world.retract(source="a")
    right(world)
    world.roll()
    exact(world)


def test_an_undo_gives_the_very_answers_of_before_with_and_without_a_run_between() -> None:
    world = filled()
    before = world.answer(), world.hours(), world.days()
    for run_between in (False, True):
        number = world.retract(source="a")
        if run_between:
            world.roll()
        world.undo(number)
        assert (world.answer(), world.hours(), world.days()) == before
        world.roll()
        assert (world.answer(), world.hours(), world.days()) == before
        exact(world)


def test_chunks_keep_what_is_retracted_through_a_full_merge() -> None:
    world = filled()
    number = world.retract(source="a")
    world.send((1, 5, 1.0))
    world.roll()
    exact(world)
    world.undo(number)
    right(world)
    world.roll()
    exact(world)


def test_matchers_are_resolved_inside_the_task() -> None:
    world = filled()
    world.retract(series=1)
    world.retract(metric=0, data_to=START + HOUR_MS)
    world.roll()
    exact(world)


def test_data_sent_again_after_a_retraction_counts() -> None:
    world = filled()
    world.retract(source="a")
    world.send((1, 2, 7.0), source="a")
    right(world)
    world.roll()
    exact(world)


def test_only_the_hours_it_touches_are_due() -> None:
    world = filled()
    assert due(world) == 0
    number = world.retract(data_from=START + HOUR_MS, data_to=START + 2 * HOUR_MS)
    assert due(world) == 2  # one hour in two shards
    world.roll()
    assert due(world) == 0
    world.undo(number)
    assert due(world) == 2  # one hour in two shards


def test_a_second_run_finds_nothing_to_do_after_a_retraction() -> None:
    world = filled()
    world.retract(source="b")
    assert len(world.roll().days) == 1
    assert world.roll().days == ()


def test_hours_name_the_retractions_they_leave_out() -> None:
    world = filled()
    number = world.retract(source="a", data_to=START + HOUR_MS)
    world.roll()
    marks = {hour: of.retractions for pack in world.manifest().hours.values() for hour, of in pack.hours.items()}
    assert retractions.numbers(marks[FIRST]) == {number}
    assert (marks[FIRST + 1], marks[FIRST + 2]) == (b"", b"")


@pytest.mark.parametrize("point", RUN_POINTS)
@pytest.mark.parametrize("act", ["retract", "undo", "minor run", "full run", "late data"])
def test_whatever_happens_inside_a_run_answers_stay_right(point: str, act: str) -> None:
    world = filled()
    number = world.retract(source="b", data_to=START + HOUR_MS)
    world.send((1, 9, 1.0), (0, 5 * HOUR_MS, 3.0), source="a")
    acts: dict[str, Callable[[], object]] = {
        "retract": lambda: world.retract(source="a"),
        "undo": lambda: world.undo(number),
        "minor run": lambda: world.roll(minor=True),
        "full run": world.roll,
        "late data": lambda: world.send((1, HOUR_MS + 5, 1.0)),
    }
    left = [point]

    def inside(reached: str) -> None:
        ignore_point(reached)
        if left and reached == point:
            left.clear()
            acts[act]()
            right(world)

    world.roll(at=inside)
    assert not left
    right(world)
    world.roll()
    world.roll()
    exact(world)


def causes(world: World) -> list[tuple[int, str, int, tuple[str, ...]]]:
    """The corrections of a full run: (hour of the day, cause, samples, sources)."""
    return [(c.hour - FIRST, c.cause, c.samples, c.sources) for c in world.roll().corrections]


def test_new_hours_are_no_correction() -> None:
    assert causes(World()) == []
    world = World()
    world.send((0, 1, 1.0))
    assert causes(world) == []


def test_late_data_is_a_correction_with_its_samples_and_sources() -> None:
    world = filled()
    world.send((0, HOUR_MS + 7, 1.0), (1, HOUR_MS + 7, 1.0), source="late")
    assert causes(world) == [(1, LATE, 2, ("late",))]
    assert causes(world) == []


def test_late_data_that_a_minor_run_took_in_is_one_too() -> None:
    world = filled()
    world.send((0, HOUR_MS + 7, 1.0), source="late")
    world.roll(minor=True)
    right(world)
    assert causes(world) == [(1, LATE, 1, ("late",))]
    exact(world)


def test_retractions_and_undos_are_corrections() -> None:
    world = filled()
    number = world.retract(source="a", data_to=START + HOUR_MS)
    assert causes(world) == [(0, RETRACTED, 0, ())]
    world.undo(number)
    assert causes(world) == [(0, UNDONE, 0, ())]


def test_what_follows_a_roll_back_is_a_correction() -> None:
    world = filled()
    world.send((0, 7, 1.0))
    world.roll(minor=True)
    run = world.roll().run
    roll_back(world.store, run, [APP])
    right(world)
    assert [cause for _, cause, _, _ in causes(world)] == [ROLLED_BACK]
    exact(world)


def test_the_agenda_says_that_a_retraction_waits_for_a_run() -> None:
    world = filled()
    assert agenda.waiting_since(world.store, APP) is None
    number = world.retract(source="a")
    assert agenda.waiting_since(world.store, APP) == world.clock.now_ms()
    world.roll()
    assert agenda.waiting_since(world.store, APP) is None
    world.undo(number)
    assert agenda.waiting_since(world.store, APP) is not None


def test_a_retraction_of_another_day_is_found_without_looking_at_every_day() -> None:
    world = filled()
    world.retract(data_from=START, data_to=START + HOUR_MS)
    app_plan = world.driver().plan_app(APP, PlanContext(NEXT_DAY + 3 * HOUR_MS))
    assert not app_plan.all_days
    assert [plan.day for plan in app_plan.plans] == [DAY]
