"""The newest exemplars of each app are kept once, shown by a query's selectors, and gone when their samples are."""

from typing import Any

import pytest

from ingest.exemplars import limits, storage
from ingest.exemplars.selection import ExemplarQuery, SeriesExemplars, select
from ingest.exemplars.storage import ExemplarNote, ExemplarWriter
from ingest.models import StoredExemplar
from spm.accounts.models import App, Organisation
from spm.store.matchers import Matcher
from spm.store.versions.retractions import Retraction
from spm.wire import Exemplar, canonical

NOW = 1_700_000_000_000
DAY_MS = 86_400_000
BUCKET = canonical("lat_bucket", {"le": "1", "job": "a"})


def exemplar(ts: int = NOW, value: float = 0.5, trace: str = "abc", series: bytes = BUCKET) -> Exemplar:
    return Exemplar(series, ts, value, (("trace_id", trace),))


def write(
    app: int, *exemplars: Exemplar, stamp_ms: int = NOW, source: str = "s", to: ExemplarWriter | None = None
) -> None:
    notes = {one: ExemplarNote(one, stamp_ms, source) for one in exemplars}
    (to or ExemplarWriter()).write({app: notes})


def ask(app: int, *matchers: Matcher, start: int = 0, end: int = 1 << 60, **more: Any) -> list[SeriesExemplars]:
    named = matchers or (Matcher("__name__", "=", "lat_bucket"),)
    return select(ExemplarQuery(app, [named], start, end, **more), lambda: None)[0]


def traces(shown: list[SeriesExemplars]) -> list[str]:
    return [labels["trace_id"] for one in shown for _, _, labels in one.exemplars]


def retraction(**parts: Any) -> Retraction:
    all_of_it = {"number": 1, "start_ms": NOW, "end_ms": 0, "write_from_ms": 0, "write_to_ms": 1 << 50}
    wide = {"data_from_ms": 0, "data_to_ms": 1 << 50, "source": "", "matchers": (), "reason": "r", "author": "a"}
    return Retraction(**{**all_of_it, **wide, **parts})


@pytest.fixture
def app(db: None) -> int:
    return App.objects.create(organisation=Organisation.objects.create(name="Acme"), name="Shop").pk


def test_an_exemplar_comes_back_with_its_series_time_bits_and_labels(app: int) -> None:
    one = Exemplar(BUCKET, NOW + 1, float("inf"), (("a", 'q"\0é'), ("trace_id", "x")))
    write(app, one, exemplar(NOW - 1, -0.0))
    [shown] = ask(app)
    assert shown.labels == {"__name__": "lat_bucket", "le": "1", "job": "a"}
    assert repr(shown.exemplars) == repr(
        [(NOW - 1, -0.0, {"trace_id": "abc"}), (NOW + 1, float("inf"), {"a": 'q"\0é', "trace_id": "x"})]
    )


def test_an_exemplar_that_comes_again_is_stored_once_under_its_newer_stamp(app: int) -> None:
    for stamp_ms in (NOW, NOW + 5, NOW + 2):
        write(app, exemplar(), stamp_ms=stamp_ms, source=f"s{stamp_ms}")
    [row] = StoredExemplar.objects.all()
    assert (row.stamp_ms, row.source) == (NOW + 5, f"s{NOW + 5}")


@pytest.mark.parametrize(
    ("matchers", "shown"),
    [
        ([Matcher("__name__", "=", "lat_bucket"), Matcher("job", "=", "b")], ["b"]),
        ([Matcher("__name__", "=", "lat_bucket"), Matcher("job", "!~", "b|c")], ["a"]),
        ([Matcher("__name__", "=~", "lat.*")], ["a", "b", "n"]),
        ([Matcher("le", "=", "1")], ["a", "b"]),
        ([Matcher("job", "=", "")], ["z"]),
        ([Matcher("__name__", "=", "none")], []),
    ],
)
def test_exemplars_are_selected_by_the_labels_of_their_series(
    app: int, matchers: list[Matcher], shown: list[str]
) -> None:
    for name, labels, trace in (
        ("lat_bucket", {"le": "1", "job": "a"}, "a"),
        ("lat_bucket", {"le": "1", "job": "b"}, "b"),
        ("latest", {"job": "n"}, "n"),
        ("other", {}, "z"),
    ):
        write(app, exemplar(trace=trace, series=canonical(name, labels)))
    assert sorted(traces(ask(app, *matchers))) == shown


def test_buckets_of_a_native_histogram_find_the_exemplars_of_its_own_series(app: int) -> None:
    write(app, exemplar(trace="native", series=canonical("lat", {"job": "a"})))
    buckets = [Matcher("__name__", "=", "lat_bucket"), Matcher("le", "=~", ".+")]
    assert traces(ask(app, *buckets, Matcher("job", "=", "a"))) == ["native"]
    assert traces(ask(app, *buckets, Matcher("job", "=", "b"))) == []


def test_both_ends_of_the_times_count(app: int) -> None:
    write(app, *(exemplar(NOW + n, trace=str(n)) for n in range(4)))
    assert traces(ask(app, start=NOW + 1, end=NOW + 2)) == ["1", "2"]


def test_an_app_sees_none_of_anothers(app: int) -> None:
    other = App.objects.create(organisation=App.objects.get(pk=app).organisation, name="Other").pk
    write(app, exemplar(trace="ours"))
    write(other, exemplar(trace="theirs"))
    assert (traces(ask(app)), traces(ask(other))) == (["ours"], ["theirs"])


@pytest.mark.parametrize(
    ("parts", "left"),
    [
        ({}, []),
        ({"write_to_ms": NOW - 1}, ["old", "new"]),
        ({"write_to_ms": NOW}, ["new"]),
        ({"source": "s2"}, ["old"]),
        ({"data_from_ms": NOW - 1, "data_to_ms": NOW}, ["new"]),
        ({"data_from_ms": NOW}, ["old"]),
        ({"matchers": (Matcher("job", "=", "a"),)}, []),
        ({"matchers": (Matcher("job", "=", "b"),)}, ["old", "new"]),
    ],
)
def test_a_retraction_hides_the_exemplars_of_the_samples_that_it_hides(app: int, parts: Any, left: list[str]) -> None:
    write(app, exemplar(NOW, trace="old"), stamp_ms=NOW, source="s1")
    write(app, exemplar(NOW + 1, trace="new"), stamp_ms=NOW + 1, source="s2")
    assert traces(ask(app, retractions=[retraction(**parts)])) == left


def test_as_of_a_time_exemplars_that_came_later_are_not_there(app: int) -> None:
    write(app, exemplar(trace="old"), stamp_ms=NOW)
    write(app, exemplar(trace="new"), stamp_ms=NOW + 1)
    assert traces(ask(app, asof_ms=NOW)) == ["old"]


def test_the_newest_of_an_app_stay_whatever_others_send(app: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EXEMPLARS_APP_MAX", 3)
    monkeypatch.setattr(limits, "EXEMPLARS_SPARE", 2)
    other, writer = (
        App.objects.create(organisation=App.objects.get(pk=app).organisation, name="Other").pk,
        ExemplarWriter(),
    )
    write(other, exemplar(NOW - DAY_MS, trace="theirs"), to=writer)
    for n in range(12):
        write(app, exemplar(NOW + n, trace=str(n)), to=writer)
        assert len(traces(ask(app))) <= 3 + 2
    assert traces(ask(app))[-3:] == ["9", "10", "11"]
    assert traces(ask(other)) == ["theirs"]


def test_as_many_of_one_moment_are_bounded_too(app: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EXEMPLARS_APP_MAX", 3)
    write(app, *(exemplar(trace=str(n)) for n in range(9)))
    assert len(traces(ask(app))) == 3


def test_an_answer_has_the_newest_and_says_that_there_are_more(app: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EXEMPLARS_SHOWN_MAX", 3)
    monkeypatch.setattr(limits, "EXEMPLARS_READ_AT_ONCE", 2)
    write(app, *(exemplar(NOW + n // 2, trace=str(n)) for n in range(6)))
    names = [Matcher("__name__", "=", "lat_bucket")]
    shown, is_cut = select(ExemplarQuery(app, [names], 0, 1 << 60), lambda: None)
    assert (len(traces(shown)), is_cut) == (3, True)
    assert {ms for one in shown for ms, _, _ in one.exemplars} == {NOW + 1, NOW + 2}
    assert select(ExemplarQuery(app, [names], NOW + 2, 1 << 60), lambda: None)[1] is False


def test_exemplars_go_when_their_samples_expire_or_are_erased(app: int) -> None:
    App.objects.filter(pk=app).update(raw_days=2)
    write(app, exemplar(NOW - 2 * DAY_MS - 1, trace="expired"), exemplar(NOW - DAY_MS, trace="kept"))
    write(app, exemplar(NOW, trace="erased"), source="bad")
    write(app, exemplar(NOW + 1, trace="hidden"), source="retracted")
    known = [retraction(source="bad", erased_ms=NOW), retraction(number=2, source="retracted")]
    assert storage.prune(NOW, lambda _: known) == 2
    assert traces(ask(app)) == ["kept", "hidden"]


def test_exemplars_go_with_their_app(app: int) -> None:
    write(app, exemplar())
    App.objects.get(pk=app).delete()
    assert not StoredExemplar.objects.exists()
