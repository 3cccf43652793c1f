"""A series ends where its data was retracted: its last value does not go on for the length of the look-back."""

import inspect

import pytest

from spm import limits
from spm.query.promql.engine import Engine
from spm.query.reader import AppStorage
from spm.store.matchers import Matcher
from spm.store.versions.retractions import DRAFT, Retraction
from tests.model.world import START, World

MINUTE = 60_000


def values(world: World, expr: str, *minutes: int) -> list[list[float | None]]:
    """The values of each series at some minutes."""
    results = [Engine(world.readers).instant(expr, START + minute * MINUTE) for minute in minutes]
    names = sorted({labels["n"] for result in results for labels in result.labels})
    return [
        [
            next((float(v[0]) for labels, v in zip(r.labels, r.values, strict=True) if labels["n"] == name), None)
            for r in results
        ]
        for name in names
    ]


@pytest.fixture
def world() -> World:
    """Twenty minutes of two series of one metric, a sample each minute; the second one is of another host."""
    world = World()
    for minute in range(1, 21):
        world.send((0, minute * MINUTE, float(minute)))
        world.send((3, minute * MINUTE, 100.0 + minute), source="other")
    return world


def test_a_retracted_stretch_is_a_gap_from_its_first_sample_on(world: World) -> None:
    world.retract(source="host", data_from=START + 9 * MINUTE, data_to=START + 12 * MINUTE)
    assert values(world, "m0", 9, 10, 11, 12, 13) == [[9, None, None, None, 13], [109, 110, 111, 112, 113]]


def test_the_last_value_stays_for_the_look_back_where_nothing_was_sent(world: World) -> None:
    assert values(world, "m0", 20, 24, 25) == [[20, 20, None], [120, 120, None]]


def test_a_retracted_end_leaves_no_stale_tail(world: World) -> None:
    world.retract(source="host", data_from=START + 18 * MINUTE)
    assert values(world, "m0", 18, 19, 20, 22) == [[18, None, None, None], [118, 119, 120, 120]]


def test_the_times_of_samples_end_there_too(world: World) -> None:
    world.retract(source="host", data_from=START + 18 * MINUTE)
    second = (START + 18 * MINUTE) / 1_000
    assert values(world, "timestamp(m0)", 18, 19)[0] == [second, None]


def test_a_value_that_a_retraction_brings_back_is_shown(world: World) -> None:
    world.send((0, 10 * MINUTE, -1.0), source="test run")
    world.retract(source="test run")
    assert values(world, "m0", 10, 11)[0] == [10, 11]


def test_a_range_draws_the_gap_and_an_undo_the_line(world: World) -> None:
    number = world.retract(source="host", data_from=START + 9 * MINUTE, data_to=START + 12 * MINUTE)
    times = START + 8 * MINUTE, START + 14 * MINUTE, MINUTE

    def line() -> list[float | None]:
        result = Engine(world.readers).range('m0{n="0"}', *times)
        return [value if some else None for value, some in zip(result.values[0], result.present[0], strict=True)]

    assert line() == [8, 9, None, None, None, 13, 14]
    world.undo(number)
    assert line() == [8, 9, 10, 11, 12, 13, 14]


def test_samples_themselves_are_only_those_that_count(world: World) -> None:
    world.retract(source="host", data_from=START + 9 * MINUTE, data_to=START + 12 * MINUTE)
    assert values(world, "count_over_time(m0[5m])", 13)[0] == [2]


@pytest.mark.parametrize("rolled", [False, True], ids=["from samples", "with rows of hours"])
def test_a_draft_answers_as_its_retraction_does_and_hides_nothing_else(world: World, *, rolled: bool) -> None:
    if rolled:
        world.clock.advance(2 * limits.HOUR_MS)
        world.roll()
    draft = retraction_of(world, "host")
    expr, before = "sum_over_time(m0[1h])", values(world, "m0", 10, 19)

    def answers(storage: AppStorage) -> list[object]:
        results = [Engine(storage).instant(text, START + limits.HOUR_MS) for text in (expr, "m0 offset 41m", expr)]
        return [(list(map(dict, each.labels)), each.values.tolist()) for each in results]

    planned = answers(world.readers.with_draft(draft))
    assert values(world, "m0", 10, 19) == before
    assert len(answers(world.readers)[0][0]) == 2  # type: ignore[index]
    world.retract(source="host")
    assert answers(world.readers) == planned
    assert len(planned[0][0]) == 1  # type: ignore[index]


def test_drafts_of_one_storage_do_not_share_the_series_that_they_select(world: World) -> None:
    for number in ("0", "3"):
        draft = retraction_of(world, "", (Matcher("n", "=", number),))
        result = Engine(world.readers.with_draft(draft)).instant("m0", START + 10 * MINUTE)
        assert [labels["n"] for labels in result.labels] == [{"0": "3", "3": "0"}[number]]
        assert "retraction" not in " ".join(result.notes)


def test_the_regular_expression_of_a_retraction_ends_with_the_query(world: World) -> None:
    class Late(Exception):
        """The deadline."""

    def check_deadline() -> None:
        if any(frame.function == "_series_of" for frame in inspect.stack()):
            raise Late

    storage = world.readers.with_draft(retraction_of(world, "", (Matcher("n", "=~", "[0-9]+"),)))
    with pytest.raises(Late):
        storage.select([Matcher("__name__", "=", "m0")], START, START + 20 * MINUTE, check_deadline=check_deadline)


def retraction_of(world: World, source: str, matchers: tuple[Matcher, ...] = ()) -> Retraction:
    """What a draft would retract."""
    until = limits.TIME_MAX_MS
    return Retraction(DRAFT, world.clock.now_ms(), 0, 0, until, -1, until, source, matchers, "", "")
