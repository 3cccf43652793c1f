"""The provenance of an answer: short sentences, neighbours merged; and bounds on the memory of a reading process."""

import pytest

from spm.errors import LimitExceeded
from spm.limits import HOUR_MS
from spm.query.request.provenance import DAYS, HOURS, RAW, Provenance, ProvenanceBuilder, join_provenance
from spm.query.series.index import SeriesIndex
from spm.store.versions import retractions
from tests.model.world import APP, START
from tests.spm.query.rolled.test_resolutions import M0, a_day

MIDNIGHT = 24 * 365  # 1971-01-01


def test_neighbours_of_one_resolution_are_one_range_and_gaps_without_data_do_not_split_it() -> None:
    builder = ProvenanceBuilder()
    builder.use(DAYS, MIDNIGHT)
    builder.use(DAYS, MIDNIGHT + 24)
    for hour in (48, 49, 53):
        builder.use(HOURS, MIDNIGHT + hour)
    builder.use(RAW, MIDNIGHT + 54)
    assert builder.build().infos() == [
        "day aggregates: 1971-01-01T00:00Z to 1971-01-03T00:00Z",
        "hour aggregates: 1971-01-03T00:00Z to 1971-01-03T06:00Z",
        "raw samples: 1971-01-03T06:00Z to 1971-01-03T07:00Z",
    ]


@pytest.mark.parametrize(("count", "end"), [(20, "and 16 more ranges"), (5, "and 1 more range"), (4, ":00Z")])
def test_many_ranges_are_counted_not_listed(count: int, end: str) -> None:
    builder = ProvenanceBuilder()
    for hour in range(0, 2 * count, 2):
        builder.use(HOURS, hour)
        builder.use(RAW, hour + 1)
    assert all(info.endswith(end) for info in builder.build().infos())


def test_the_provenance_of_several_batches_is_joined() -> None:
    one = Provenance(((RAW, (0, 2)),), frozenset({3}), raw_expired_ms=HOUR_MS)
    two = Provenance(
        ((RAW, (1, 5)), (HOURS, (5, 6))), frozenset({3, 9}), hours_expired_ms=2 * HOUR_MS, raw_expired_ms=5
    )
    both = join_provenance([one, two])
    assert both.infos() == [
        "hour aggregates: 1970-01-01T05:00Z to 1970-01-01T06:00Z",
        "raw samples: 1970-01-01T00:00Z to 1970-01-01T05:00Z",
        "2 retractions in effect: 3, 9",
    ]
    assert [w.split(" expired")[0] for w in both.warnings()] == [
        "raw data up to 1970-01-01T01:00Z has",
        "hour aggregates up to 1970-01-01T02:00Z have",
    ]


def test_a_provenance_without_reads_has_no_sentences() -> None:
    assert join_provenance([]) == Provenance()
    assert Provenance().infos() == Provenance().warnings() == []


def test_a_retraction_elsewhere_in_time_or_about_another_metric_is_not_named() -> None:
    world = a_day()
    world.send((0, 10 * HOUR_MS + 1, 1.0))
    world.retract(metric=1)
    world.retract(data_from=START + 10 * HOUR_MS, data_to=START + 11 * HOUR_MS)
    world.clock.advance(2_000)
    assert world.fresh().select(M0, START, START + HOUR_MS).provenance.retractions == frozenset()
    assert len(world.fresh().select(M0, START, START + 11 * HOUR_MS).provenance.retractions) == 1


def test_samples_deleted_for_good_are_missed_by_an_answer_as_of_before() -> None:
    world = a_day()
    before = world.clock.now_ms()
    world.clock.advance(1_000)
    number = world.retract(source="host")
    assert world.fresh().asof(before).select(M0, START, START + HOUR_MS).provenance.warnings() == []
    retractions.mark_erased(world.store, APP, number, world.clock.now_ms())
    warned = world.fresh().asof(before).select(M0, START, START + HOUR_MS).provenance.warnings()
    assert warned == [f"samples of 1 retraction were deleted since then and are missing: {number}"]
    assert world.fresh().select(M0, START, START + HOUR_MS).provenance.warnings() == []


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_the_index_is_bounded() -> None:
    world = a_day()
    index = SeriesIndex(APP, lambda *_: None, bytes_max=900)
    with pytest.raises(LimitExceeded, match="more series"):
        index.load(world.store)
