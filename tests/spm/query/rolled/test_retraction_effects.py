"""Claims about the retractions that an answer names: which take effect, which come too late, which are final."""

from collections.abc import Callable

import numpy as np
import pytest

from rollups.delete.expire import RetentionPeriods
from spm.limits import DAY_HOURS, HOUR_MS
from spm.query.explain import explanation
from spm.query.request.batches import Matcher
from spm.query.request.provenance import Provenance
from tests.model.world import START, World
from tests.spm.query.rolled.test_resolutions import FIRST, M0, moved

HOURS_GONE, DAYS_ALONE = RetentionPeriods(0), RetentionPeriods(0, 0)
WITHOUT = "hours whose samples have expired stay as they are: 1 retraction without effect there: 1"
LASTING = "hours whose samples have expired stay as they are: 1 retraction undone since and still left out there: 1"
IN_EFFECT, POSSIBLE = "1 retraction in effect: 1", "1 retraction may be in effect: 1"

Act = Callable[[World], object]


def two_hours() -> World:
    """Two series of m0 and one of m1; the last is the only one of its metric."""
    world = World()
    world.send(*((s, hour * HOUR_MS + 600_000, 1.0) for s in (0, 3, 1) for hour in (0, 1)))
    return world


def after(world: World, *acts: Act) -> World:
    for act in acts:
        act(world)
        world.clock.advance(2_000)
    return world


def roll(world: World) -> None:
    world.roll()


def retract(**what: object) -> Act:
    return lambda world: world.retract(**what)  # type: ignore[arg-type]


def undo(world: World) -> None:
    world.undo(1)


def seal(keep: RetentionPeriods) -> Act:
    return lambda world: world.retain(keep, days_later=40)


def cells(world: World, *matchers: Matcher) -> Provenance:
    """The provenance of the whole day."""
    return world.fresh().select_cells(matchers, np.array([FIRST, FIRST + DAY_HOURS]), ["sum"]).provenance


def retraction_notes(provenance: Provenance) -> list[str]:
    return [note for note in (*provenance.infos(), *provenance.warnings()) if "retraction" in note]


@pytest.mark.parametrize("keep", [HOURS_GONE, DAYS_ALONE], ids=["only hours remain", "only days remain"])
@pytest.mark.parametrize("series", [0, 1], ids=["one of two series", "all that the metric has"])
@pytest.mark.parametrize(
    ("history", "expected"),
    [
        pytest.param("seal retract", [WITHOUT], id="made after the samples expired"),
        pytest.param("retract seal", [IN_EFFECT], id="made before"),
        pytest.param("retract seal undo", [IN_EFFECT, LASTING], id="made before, and undone after they expired"),
        pytest.param("seal retract undo", [], id="made too late, and undone"),
        pytest.param("retract undo seal", [], id="undone in time"),
    ],
)
def test_where_samples_have_expired_a_retraction_is_in_effect_as_it_was_then(
    history: str, expected: list[str], series: int, keep: RetentionPeriods
) -> None:
    acts = {"seal": seal(keep), "retract": retract(series=series), "undo": undo}
    world = after(two_hours(), roll, *(act for name in history.split() for act in (acts[name], roll)))
    provenance = cells(world, Matcher("__name__", "=", f"m{series}"))
    assert retraction_notes(provenance) == expected
    [each] = explanation(world.fresh(), provenance, world.clock.now_ms())["retractions"]
    assert each["inEffect"] == (IN_EFFECT in expected)
    assert each["withoutEffectWhereSamplesAreGone"] == (WITHOUT in expected)
    assert each["staysLeftOutWhereSamplesAreGone"] == (LASTING in expected)
    assert retraction_notes(cells(world, Matcher("__name__", "=", "m2"))) == []


ZERO = (*M0, Matcher("n", "=", "0"))


@pytest.mark.parametrize("compacted", [False, True], ids=["from samples", "from hours"])
@pytest.mark.parametrize(
    ("what", "samples", "hours"),
    [
        ({"series": 0}, [IN_EFFECT], [IN_EFFECT]),
        ({"series": 3}, [], []),
        ({"metric": 1}, [], []),
        ({}, [IN_EFFECT], [IN_EFFECT]),
        ({"source": "host"}, [IN_EFFECT], [POSSIBLE]),
        ({"source": "other"}, [], [POSSIBLE]),
        ({"source": "nobody"}, [], []),
        ({"data_to": START + 900_000}, [IN_EFFECT], [POSSIBLE]),
        ({"data_to": START + 300_000}, [], [POSSIBLE]),
    ],
    ids=str,
)
def test_no_retraction_is_called_in_effect_that_takes_out_nothing_that_is_requested(
    what: dict[str, object], samples: list[str], hours: list[str], compacted: bool
) -> None:
    world = two_hours()
    world.send((3, 700_000, 1.0), (3, HOUR_MS + 700_000, 1.0), source="other")
    after(world, roll, retract(**what), *([roll] if compacted else []))
    storage = world.fresh()
    assert retraction_notes(storage.select(ZERO, START, START + HOUR_MS).provenance) == samples
    expected = hours if compacted else samples
    assert retraction_notes(cells(world, *ZERO)) == expected


def test_a_retraction_of_other_samples_of_the_hour_is_not_in_effect() -> None:
    world = after(two_hours(), roll, retract(data_to=START + 900_000))
    late = world.fresh().select(M0, START + 1_800_000, START + HOUR_MS + 700_000)
    assert retraction_notes(late.provenance) == []


@pytest.mark.parametrize("keep", [HOURS_GONE, DAYS_ALONE], ids=["only hours remain", "only days remain"])
def test_a_retraction_is_named_where_a_former_epoch_put_a_sealed_hour(keep: RetentionPeriods) -> None:
    world = after(two_hours(), roll, retract(series=0), roll, seal(keep), undo, moved)
    assert retraction_notes(cells(world, *M0)) == [IN_EFFECT, LASTING]
    assert retraction_notes(cells(world, Matcher("__name__", "=", "m1"))) == []
