"""Claims about retractions as people make them: what a preview counts, what is refused, what a seal keeps."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollups import retraction
from rollups.retraction import Draft, Preview
from spm import limits
from spm.errors import BadQuery, Refused
from spm.limits import HOUR_MS
from spm.store import keys, manifest
from spm.store.manifest import SEALED
from spm.store.matchers import Matcher
from spm.store.versions import retractions
from tests.model.world import APP, DAY, START, Sample, World, metric_of
from tests.support.faults import flip

HOUR = START // HOUR_MS


@pytest.fixture
def world() -> World:
    """Two hosts: three samples of host a in two hours, one of host b; then a newer value of a's first one."""
    world = World()
    world.send((0, 1, 1.0), (1, 2, 2.0), (0, HOUR_MS + 1, 3.0), source="a")
    world.send((2, 5, 7.0), source="b")
    world.send((0, 1, 9.0), source="b")
    return world


def preview(world: World, **conditions: object) -> Preview:
    """What a draft would hide."""
    draft = Draft(reason="test", **conditions)  # type: ignore[arg-type]  # a table's row
    return retraction.preview(world.store, APP, retraction.validate_draft(draft, world.clock.now_ms()))


def test_a_preview_counts_what_answers_would_lose(world: World) -> None:
    counts = preview(world, source="b")
    assert (counts.samples, counts.series, counts.hours, counts.sources) == (2, 2, 1, ("b",))
    assert (counts.first_ms, counts.last_ms, counts.metrics) == (START + 1, START + 5, ("m0", "m2"))


def test_a_preview_tells_values_that_go_from_older_ones_that_return(world: World) -> None:
    counts = preview(world, source="b")
    assert (counts.samples, counts.restored, counts.versions) == (2, 1, 2)


def test_a_version_that_nobody_sees_is_no_sample(world: World) -> None:
    counts = preview(world, source="a", data_from_ms=START, data_to_ms=START + 1)
    assert (counts.samples, counts.versions, counts.series) == (0, 1, 0)


def test_what_is_retracted_already_is_not_counted_again(world: World) -> None:
    draft = retraction.validate_draft(Draft(source="b", reason="test"), world.clock.now_ms())
    retraction.retract(world.store, APP, draft)
    assert preview(world, source="b") == Preview()


@pytest.mark.parametrize(
    ("matchers", "samples"),
    [
        ((Matcher("__name__", "=", "m0"),), 2),
        ((Matcher("__name__", "=", "m1"), Matcher("n", "=", "1")), 1),
        ((Matcher("n", "=~", "0|2"),), 3),
        ((Matcher("n", "=", "99"),), 0),
    ],
    ids=["a metric", "a series", "series by expression", "no series"],
)
@pytest.mark.parametrize("compacted", [False, True])
def test_a_preview_follows_the_matchers(
    world: World, matchers: tuple[Matcher, ...], samples: int, compacted: bool
) -> None:
    if compacted:
        world.roll()
    assert preview(world, matchers=matchers).samples == samples


def test_a_preview_reads_only_hours_that_may_be_touched(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    world.roll()
    read = retraction._pieces

    def noted(reader: Any, unit: Any, wanted: Any) -> Any:
        seen.append(unit.at.hour)
        return read(reader, unit, wanted)

    monkeypatch.setattr(retraction, "_pieces", noted)
    assert preview(world, data_from_ms=START + HOUR_MS, data_to_ms=START + 2 * HOUR_MS).samples == 1
    assert set(seen) == {HOUR + 1}


@pytest.mark.parametrize("limit", ["RETRACT_PREVIEW_SAMPLES_MAX", "RETRACT_PREVIEW_HOUR_SHARDS_MAX"])
def test_a_preview_of_too_much_says_that_there_is_more(
    world: World, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not preview(world, write_from_ms=0).at_least
    monkeypatch.setattr(limits, limit, 1)
    counts = preview(world, write_from_ms=0)
    assert counts.at_least
    assert 0 < counts.samples < 4


@pytest.mark.parametrize(
    "conditions",
    [
        {},
        {"source": ""},
        {"write_to_ms": START},
        {"data_from_ms": START},
        {"data_to_ms": START},
        {"matchers": (Matcher("host", "!=", "x"),)},
        {"matchers": (Matcher("host", "=~", ".*"),)},
    ],
    ids=lambda conditions: " ".join(conditions) or "nothing",
)
def test_a_draft_that_would_take_out_everything_is_refused(world: World, conditions: dict[str, object]) -> None:
    with pytest.raises(Refused, match="everything"):
        preview(world, **conditions)


@pytest.mark.parametrize(
    ("conditions", "error"),
    [
        ({"source": "a", "data_from_ms": 5, "data_to_ms": 5}, Refused),
        ({"source": "a", "write_from_ms": 5, "write_to_ms": 4}, Refused),
        ({"source": "a" * (limits.SOURCE_BYTES_MAX + 1)}, Refused),
        ({"matchers": (Matcher("n", "=", "1"),) * (limits.LABELS_MAX + 1)}, Refused),
        ({"matchers": (Matcher("n", "=~", "("),)}, BadQuery),
    ],
    ids=["no time", "writes upside down", "a long source", "many matchers", "a broken expression"],
)
def test_a_draft_that_cannot_be_is_refused(world: World, conditions: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        preview(world, **conditions)


@pytest.mark.parametrize("reason", ["", "  ", "x" * (limits.RETRACT_REASON_CHARS_MAX + 1)])
def test_a_retraction_without_a_fit_reason_is_refused(world: World, reason: str) -> None:
    with pytest.raises(Refused, match="reason"):
        retraction.retract(world.store, APP, retraction.validate_draft(Draft(source="a", reason=reason), START))
    assert retractions.read(world.store, APP) == ()


def test_a_retraction_ends_where_it_was_made_unless_said_otherwise(world: World) -> None:
    retraction_made = retraction.validate_draft(Draft(source="a", reason="x"), 1_000)
    assert (retraction_made.write_from_ms, retraction_made.write_to_ms, retraction_made.data_to_ms) == (
        0,
        1_000,
        limits.TIME_MAX_MS,
    )


def test_an_undo_keeps_the_row_and_its_times(world: World) -> None:
    retraction_made = retraction.retract(
        world.store, APP, retraction.validate_draft(Draft(source="a", reason="x"), START)
    ).retraction
    ended = retraction.undo(world.store, APP, retraction_made.number, START + 5).retraction
    assert (ended.start_ms, ended.end_ms, ended.reason) == (START, START + 5, "x")
    assert retractions.read(world.store, APP) == (ended,)


def test_hours_under_a_seal_are_told_and_left_alone(world: World) -> None:
    world.roll()
    value = world.manifest()
    sealed = msgspec.structs.replace(value, nonce=1, seals={HOUR: SEALED})
    before = manifest.encode(value)
    assert world.store.check_and_put("manifest", keys.manifest(APP, DAY), b"v", before, manifest.encode(sealed))
    counts = preview(world, source="a")
    assert (counts.samples, counts.hours, counts.sealed) == (1, 1, 1)
    done = retraction.retract(
        world.store, APP, retraction.validate_draft(Draft(source="a", reason="x"), world.clock.now_ms())
    )
    assert done.sealed_hours == (HOUR,)


@pytest.mark.parametrize("table", ["manifest", "chunks"])
def test_damage_stops_no_retraction(world: World, table: str) -> None:
    world.roll()
    for key, _ in list(world.store.scan(table, b"", b"\xff" * 40)):
        flip(world.store, table, key, b"v")
    counts = preview(world, source="a")
    draft = retraction.validate_draft(Draft(source="a", reason="x"), world.clock.now_ms())
    done = retraction.retract(world.store, APP, draft)
    assert (counts.at_least, done.sealed_hours) == (True, ())
    assert [each.number for each in retractions.read(world.store, APP)] == [done.retraction.number]


# --- against a list of versions ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Version:
    """One sample of one message."""

    series: int
    ts: int
    value: float
    ms: int
    source: str


def counted(versions: list[Version], draft: Draft, now_ms: int) -> tuple[int, int, int, int]:
    """(samples, restored, versions, series) by looking at each version in turn; the list is in order of stamps."""
    metric = next((m.value for m in draft.matchers), None)

    def hidden(v: Version) -> bool:
        return (
            draft.source in ("", v.source)
            and (draft.write_from_ms or 0) <= v.ms <= (now_ms if draft.write_to_ms is None else draft.write_to_ms)
            and (draft.data_from_ms is None or draft.data_from_ms < v.ts)
            and (draft.data_to_ms is None or v.ts <= draft.data_to_ms)
            and metric in (None, metric_of(v.series))
        )

    now = {(v.series, v.ts): v for v in versions}
    then = {(v.series, v.ts): v for v in versions if not hidden(v)}
    gone = {key for key, v in now.items() if hidden(v)}
    return len(gone), len(gone & then.keys()), sum(map(hidden, versions)), len({series for series, _ in gone})


samples = st.tuples(st.integers(0, 4), st.integers(1, 3).map(lambda i: i * HOUR_MS // 2), st.sampled_from([1.0, 2.0]))
messages = st.tuples(st.lists(samples, min_size=1, max_size=4, unique_by=lambda s: s[:2]), st.sampled_from("ab"))
moments = st.none() | st.integers(0, 12).map(lambda i: START + HOUR_MS + i)
times = st.none() | st.integers(-1, 4).map(lambda i: START + i * HOUR_MS // 2)


@settings(max_examples=60, deadline=None)
@given(
    sent=st.lists(messages, min_size=1, max_size=6),
    rolls=st.sets(st.integers(0, 5), max_size=2),
    source=st.sampled_from(["", "a", "b"]),
    metric=st.sampled_from([None, "m0", "m1"]),
    writes=st.tuples(moments, moments),
    data=st.tuples(times, times),
)
def test_a_preview_equals_a_count_over_the_list_of_versions(
    sent: list[tuple[list[Sample], str]],
    rolls: set[int],
    source: str,
    metric: str | None,
    writes: tuple[int | None, int | None],
    data: tuple[int | None, int | None],
) -> None:
    world, versions = World(), []
    for number, (message, name) in enumerate(sent):
        stamp = int(world.send(*message, source=name).stamp.ms)
        versions += [Version(series, START + ms, value, stamp, name) for series, ms, value in message]
        if number in rolls:
            world.roll(minor=True)
    matchers = () if metric is None else (Matcher("__name__", "=", metric),)
    draft = Draft(source, matchers, *writes, *data, reason="x")
    try:
        retraction_made = retraction.validate_draft(draft, world.clock.now_ms())
    except Refused:
        return
    counts = retraction.preview(world.store, APP, retraction_made)
    expected = counted(versions, draft, world.clock.now_ms())
    assert (counts.samples, counts.restored, counts.versions, counts.series) == expected
