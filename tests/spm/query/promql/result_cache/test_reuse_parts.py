"""An answer of cached and new steps has the annotations of the whole; if parts cannot give them, it is recomputed."""

from __future__ import annotations

import math

import pytest

from spm.limits import HOUR_MS
from spm.query.fake import FakeStorage
from spm.query.promql.engine import Engine
from spm.query.promql.result_cache.entries import ResultCache
from spm.query.promql.result_cache.reuse import AppResultCache
from spm.query.view.fingerprint import SampleFingerprint
from tests.model.world import START
from tests.spm.query.promql.result_cache.test_reuse import MINUTE_MS, Asker

STEPS = range(61)


class Settled(FakeStorage):
    """Samples that never change."""

    def fingerprint(self, start_ms: int, end_ms: int) -> SampleFingerprint:  # type: ignore[override]
        return SampleFingerprint((), {}, frozenset(), {})


def annotations_of(
    storage: Settled, text: str, first: int, last: int, results: ResultCache | None = None
) -> tuple[list[str], ...]:
    """Return the infos and warnings of an answer."""
    cache = None if results is None else AppResultCache(results, storage)
    result = Engine(storage, cache=cache).range(text, START + first * MINUTE_MS, START + last * MINUTE_MS, MINUTE_MS)
    return result.notes, result.warnings


def at_both_ends(odd: float, usual: float) -> list[float]:
    """Return an hour of minutes with other values in its first and last ten."""
    return [usual if 10 <= minute <= 50 else odd for minute in STEPS]


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("histogram_quantile(0.5, lat_bucket)", "infos"),
        ("quantile(scalar(rising), m)", "warnings"),
        ("limit_ratio(scalar(ratio), m)", "warnings"),
    ],
)
def test_annotation_on_both_sides_of_cached_steps_is_that_of_the_whole(text: str, kinds: str) -> None:
    storage, times = Settled(), [START + minute * MINUTE_MS for minute in STEPS]
    for bound, values in (("1", [10.0] * 61), ("2", at_both_ends(5, 15)), ("+Inf", [20.0] * 61)):
        storage.add("lat_bucket", {"le": bound}, times, values)
    storage.add("rising", {}, times, [minute / 20 - 1 for minute in STEPS]).add("m", {}, times, [1.0] * 61)
    storage.add("ratio", {}, times, [value + minute / 100 for minute, value in enumerate(at_both_ends(1.2, 0))])
    results = ResultCache(samples_min=0)
    for _ in range(3):
        assert annotations_of(storage, text, 25, 35, results) == ([], [])
    actual = annotations_of(storage, text, 0, 60, results)
    assert actual == annotations_of(storage, text, 0, 60)
    assert actual[kinds == "warnings"]


@pytest.mark.parametrize("later", [(1, 8), (3, 5)], ids=["more steps", "fewer steps"])
def test_hours_that_cannot_tell_at_one_step_decide_for_the_steps_beside_it_alone(later: tuple[int, int]) -> None:
    asker = Asker()
    for hour in range(4, 9):
        minutes = range(1, 60)
        asker.world.send(*((0, hour * HOUR_MS + minute * MINUTE_MS, minute / 7) for minute in minutes))
    asker.world.send((0, HOUR_MS + 30 * MINUTE_MS, math.inf))
    asker.world.clock.advance(10 * HOUR_MS)
    asker.run()
    asker.ask("delta(m0[1h])", hours=(1, 5), step_s=3_600, times=3)
    asker.ask("delta(m0[1h])", hours=later, step_s=3_600)


def test_retraction_between_a_new_step_and_a_cached_one_is_reported() -> None:
    asker = Asker()
    gap = START + 2 * HOUR_MS + 10 * MINUTE_MS
    asker.world.retract(data_from=gap, data_to=gap + 5 * MINUTE_MS)
    assert asker.ask(hours=(2.5, 4), step_s=1_800, times=3) == 4
    assert asker.ask(hours=(1, 4), step_s=1_800) == 3
