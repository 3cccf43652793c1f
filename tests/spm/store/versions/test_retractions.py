"""Claims about retractions.py and visibility.py of spm/store/versions: what a retraction hides, and what records it."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spm import limits
from spm.errors import Refused, StoreUnavailable
from spm.limits import HOUR_MS
from spm.store.backends.memory import MemoryBackend
from spm.store.encoding.blocks import Messages
from spm.store.manifest import Entry, Generation, Replay, State
from spm.store.matchers import Matcher
from spm.store.versions import retractions
from spm.store.versions.merge import Piece, merge, pick
from spm.store.versions.retractions import Retraction
from spm.store.versions.visibility import Visibility, contains_pairs
from tests.support.rows import APP, HOUR

EVER = 2**62
DRAFT = Retraction(0, 100, 0, 0, EVER, 0, EVER, "", (), "wrong unit", "ann")
Version = tuple[int, int, int, str]  # series, ts, stamp ms, source


def retraction(**changes: object) -> Retraction:
    """A retraction of everything, but for these fields."""
    return msgspec.structs.replace(DRAFT, **{"number": 1, **changes})


def piece(versions: list[Version]) -> Piece:
    """These versions, merged: their values are their places in the list."""
    parts = [
        Piece(
            Messages(np.array([ms]), np.array([1]), np.array([0]), np.zeros(1, np.int32), (source,)),
            np.array([series], np.uint64),
            np.array([series % 2], np.uint64),
            np.ones(1, np.int32),
            np.zeros(1, np.int32),
            np.array([ts]),
            np.array([float(i)]),
        )
        for i, (series, ts, ms, source) in enumerate(versions)
    ]
    return merge(parts)


VERSIONS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(1, 6), st.sampled_from(["a", "b"])),
    min_size=1,
    max_size=12,
    unique=True,
)
RANGE = st.tuples(st.integers(0, 6), st.integers(0, 6))
RETRACTIONS = st.lists(
    st.builds(
        lambda w, d, source, series: retraction(
            write_from_ms=w[0],
            write_to_ms=w[1],
            data_from_ms=d[0],
            data_to_ms=d[1],
            source=source,
            matchers=tuple(Matcher("n", "=", str(s)) for s in series),
        ),
        RANGE,
        RANGE,
        st.sampled_from(["", "a", "b", "c"]),
        st.lists(st.integers(0, 5), max_size=2, unique=True),
    ),
    max_size=3,
)


def series_of(retraction: Retraction) -> tuple[np.ndarray, np.ndarray]:
    """In these tests a retraction's matchers list its series."""
    ids = np.array([int(m.value) for m in retraction.matchers], np.uint64)
    return ids, ids % np.uint64(2)


def hides(retraction: Retraction, version: Version) -> bool:
    """What a retraction is, in one sentence."""
    series, ts, ms, source = version
    return (
        retraction.write_from_ms <= ms <= retraction.write_to_ms
        and retraction.data_from_ms < ts <= retraction.data_to_ms
        and retraction.source in ("", source)
        and (not retraction.matchers or any(m.value == str(series) for m in retraction.matchers))
    )


@given(VERSIONS, RETRACTIONS, st.none() | st.integers(0, 7))
def test_a_visibility_shows_the_newest_version_that_is_known_and_not_retracted(
    versions: list[Version], given: list[Retraction], asof: int | None
) -> None:
    merged = piece(versions)
    got = pick(merged, Visibility(tuple(given), series_of, asof).visible_rows(merged))
    owner = np.repeat(got.series, got.counts).tolist()
    shown = {(s, t): versions[int(v)] for s, t, v in zip(owner, got.ts.tolist(), got.values, strict=True)}
    want: dict[tuple[int, int], Version] = {}
    for version in sorted(versions, key=lambda v: (v[2], v[3])):
        if (asof is None or version[2] <= asof) and not any(hides(r, version) for r in given):
            want[version[:2]] = version
    assert shown == want


def test_a_visibility_that_hides_nothing_returns_no_mask() -> None:
    merged = piece([(1, 1, 1, "a")])
    assert Visibility().visible_rows(merged) is None
    assert Visibility((retraction(source="other"), retraction(write_from_ms=2)), asof_ms=1).visible_rows(merged) is None


@given(VERSIONS, RETRACTIONS)
def test_a_retraction_touches_every_hour_shard_with_samples_it_hides(
    versions: list[Version], given: list[Retraction]
) -> None:
    stamps, sources = [v[2] for v in versions], {v[3] for v in versions}
    for retraction in given:
        if any(hides(retraction, v) for v in versions):
            assert retraction.touches(0, min(stamps), max(stamps), sources)


@pytest.mark.parametrize(
    ("changes", "touched"),
    [
        pytest.param({}, True, id="everything"),
        pytest.param({"data_from_ms": (HOUR + 1) * HOUR_MS}, False, id="data after the hour: its end belongs to it"),
        pytest.param({"data_from_ms": (HOUR + 1) * HOUR_MS - 1}, True, id="the hour's last instant"),
        pytest.param({"data_to_ms": HOUR * HOUR_MS}, False, id="data up to the hour: its start does not belong to it"),
        pytest.param({"data_to_ms": HOUR * HOUR_MS + 1}, True, id="the hour's first instant"),
        pytest.param({"write_from_ms": 21}, False, id="written later"),
        pytest.param({"write_to_ms": 9}, False, id="written before"),
        pytest.param({"write_from_ms": 20, "write_to_ms": 20}, True, id="written at the newest stamp"),
        pytest.param({"source": "b"}, False, id="another source"),
        pytest.param({"source": "a"}, True, id="its source"),
    ],
)
def test_an_hour_shard_is_touched_by(changes: dict[str, object], touched: bool) -> None:
    assert retraction(**changes).touches(HOUR, 10, 20, ("a",)) is touched


@pytest.mark.parametrize(
    ("state", "count"),
    [(State(), 0), (State((Generation(1),)), 1), (State((), (Replay(1, 2),)), 1)],
    ids=["nothing is in it", "compacted", "to be replayed"],
)
def test_only_hour_shards_with_compacted_data_are_touched(state: State, count: int) -> None:
    assert len(retractions.touching([retraction()], Entry(state, (), 1, 2, ("a",)), HOUR)) == count


@pytest.mark.parametrize(
    ("at", "active"), [(99, False), (100, True), (149, True), (150, False), (None, False)], ids=str
)
def test_a_retraction_is_in_force_from_its_start_until_its_end(at: int | None, active: bool) -> None:
    assert retraction(end_ms=150).active(at) is active


@given(st.lists(st.integers(1, 2**63 - 1), max_size=5, unique=True), st.randoms(use_true_random=False))
def test_equal_sets_have_equal_ids_in_any_order(given: list[int], by: object) -> None:
    other = list(given)
    by.shuffle(other)  # type: ignore[attr-defined]
    packed = retractions.ids(retraction(number=n) for n in given)
    assert packed == retractions.ids(retraction(number=n) for n in other)
    assert retractions.numbers(packed) == set(given)


def test_the_fingerprint_of_a_day_depends_on_the_retractions_of_each_hour() -> None:
    one, two = retractions.ids([retraction()]), retractions.ids([retraction(number=2)])
    marks = [retractions.day_fingerprint(hours) for hours in ([(1, one)], [(2, one)], [(1, two)], [(1, one + two)])]
    assert len(set(marks)) == 4
    assert retractions.day_fingerprint([(1, b""), (2, b"")]) == b""
    assert retractions.day_fingerprint([(2, b""), (1, one)]) == marks[0]


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), max_size=9),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=9),
)
def test_a_series_is_chosen_by_its_id_and_its_metric(
    merged: list[tuple[int, int]], wanted: list[tuple[int, int]]
) -> None:
    def columns(pairs: list[tuple[int, int]]) -> list[np.ndarray]:
        return [np.array([p[i] for p in pairs], np.uint64) for i in (0, 1)]

    assert contains_pairs(*columns(merged), *columns(wanted)).tolist() == [p in wanted for p in merged]


# --- rows -------------------------------------------------------------------------------------------------------------


def test_retractions_are_read_in_order_and_by_their_app_alone() -> None:
    store = MemoryBackend()
    first, second = (retractions.add(store, APP, DRAFT) for _ in range(2))
    retractions.add(store, APP + 1, DRAFT)
    assert retractions.read(store, APP) == (first, second)
    assert first.number < second.number


def test_an_undo_keeps_the_row_for_reads_as_of_an_earlier_time() -> None:
    store = MemoryBackend()
    number = retractions.add(store, APP, DRAFT).number
    retractions.end(store, APP, number, 150)
    [given] = retractions.read(store, APP)
    assert (given.active(), given.active(120), given.active(150)) == (False, True, False)


def test_an_undo_by_a_clock_that_is_behind_still_ends_it_after_its_start() -> None:
    store = MemoryBackend()
    number = retractions.add(store, APP, DRAFT).number
    assert retractions.end(store, APP, number, 50).end_ms == 101


@pytest.mark.parametrize(
    ("before", "match"),
    [
        pytest.param(lambda s, n: retractions.end(s, APP, n, 150), "undone already", id="undone"),
        pytest.param(lambda s, n: retractions.mark_erased(s, APP, n, 150), "was erased", id="erased"),
        pytest.param(lambda s, n: None, "no retraction", id="of another app"),
    ],
)
def test_an_undo_is_refused_when_it_was(before: object, match: str) -> None:
    store = MemoryBackend()
    number = retractions.add(store, APP + (match == "no retraction"), DRAFT).number
    before(store, number)  # type: ignore[operator]
    with pytest.raises(Refused, match=match):
        retractions.end(store, APP, number, 160)


def test_only_a_retraction_in_force_can_be_purged_and_twice_is_once() -> None:
    store = MemoryBackend()
    one, two = (retractions.add(store, APP, DRAFT).number for _ in range(2))
    retractions.end(store, APP, one, 150)
    with pytest.raises(Refused, match="not in force"):
        retractions.mark_erased(store, APP, one, 160)
    assert retractions.mark_erased(store, APP, two, 160) == retractions.mark_erased(store, APP, two, 170)


def test_one_retraction_too_many_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RETRACTIONS_ACTIVE_MAX", 2)
    store = MemoryBackend()
    first, _ = (retractions.add(store, APP, DRAFT) for _ in range(2))
    with pytest.raises(Refused, match="too many"):
        retractions.add(store, APP, DRAFT)
    retractions.end(store, APP, first.number, 150)
    third = retractions.add(store, APP, DRAFT)
    with pytest.raises(Refused, match="too many"):
        retractions.add(store, APP, DRAFT)
    retractions.mark_erased(store, APP, third.number, 160)
    retractions.add(store, APP, DRAFT)


class Deaf(MemoryBackend):
    """Carries calls out, but the answers of its first check-and-puts of retractions are lost."""

    lost = 0

    def check_and_put(self, table: str, key: bytes, column: bytes, expected: bytes | None, value: bytes) -> bool:
        landed = super().check_and_put(table, key, column, expected, value)
        if table == "retractions" and self.lost:
            self.lost -= 1
            raise StoreUnavailable("no answer")
        return landed


def test_a_lost_answer_neither_doubles_a_retraction_nor_refuses_its_undo() -> None:
    store = Deaf()
    store.lost = 1
    number = retractions.add(store, APP, DRAFT).number
    assert len(retractions.read(store, APP)) == 1
    store.lost = 1
    assert retractions.end(store, APP, number, 150).end_ms == 150
