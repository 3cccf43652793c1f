"""Whichever way an app is asked: one line of turns, one set of limits, `asof` and `explain` in each; and in words."""

import json
from typing import Any

import pytest
from django.test import Client

from alerts.expressions import query_engine
from frontend import queries
from frontend.prometheus import endpoint
from spm import query
from spm.errors import QueryFailed, QueryTimeout, QueryTooLarge
from spm.query.request.admission import QueryAdmission
from tests.frontend.conftest import House
from tests.frontend.ways import NAMES, SAMPLES, body_of, names_told, told
from tests.model.world import START, World, form_of
from tests.support.remote_read_stream import read_stream

EVERY = {**SAMPLES, **NAMES}
HOUR = 3_600_000
FIRST, LAST = START, START + 60_000


@pytest.fixture
def world(alpha: House, monkeypatch: pytest.MonkeyPatch) -> World:
    """A store with a sample of m0, corrected an hour later, when m1 came as well, of the same time."""
    made = World()
    made.send((0, 1_000, 1.0))
    made.clock.advance(HOUR)
    made.send((0, 1_000, 2.0), (1, 1_000, 3.0), (3, 1_000, 4.0))
    monkeypatch.setattr(query, "storage_for", lambda app: made.fresh())
    return made


@pytest.fixture
def bearer(alpha: House) -> dict[str, str]:
    return {"Authorization": f"Bearer {alpha.token}"}


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> QueryAdmission:
    """A single turn for an organisation, and nobody may wait for it."""
    made = QueryAdmission(running_max=1, waiting_max=0)
    monkeypatch.setattr(endpoint, "admission", made)
    monkeypatch.setattr(queries, "admission", made)
    return made


def before(world: World) -> str:
    """A time between the first message and the correction."""
    return str((world.clock.now_ms() - HOUR // 2) / 1000)


# --- turns


TAKING = {way: ask for way, ask in EVERY.items() if way not in ("labels", "label values")}  # these read no samples


@pytest.mark.parametrize("way", TAKING)
def test_every_way_to_read_waits_for_a_turn_and_gives_it_back(
    client: Client, world: World, alpha: House, bearer: dict[str, str], turns: QueryAdmission, way: str
) -> None:
    def ask() -> Any:
        return TAKING[way](client, bearer, "m0", FIRST, LAST)

    with turns.admit(alpha.organisation.pk):
        refused = ask()
    assert refused.status_code == 429
    assert "1 queries of your organisation are running" in json.loads(refused.content)["error"]
    assert refused["Retry-After"]
    for _ in range(2):
        answer = ask()
        assert answer.status_code == 200
        body_of(answer)


@pytest.mark.parametrize("way", ["labels", "label values"])
def test_names_of_a_time_are_read_from_samples_and_take_a_turn(
    client: Client, world: World, alpha: House, bearer: dict[str, str], turns: QueryAdmission, way: str
) -> None:
    with turns.admit(alpha.organisation.pk):
        now = NAMES[way](client, bearer, "m0", FIRST, LAST)
        then = NAMES[way](client, bearer, "m0", FIRST, LAST, asof=before(world))
    assert (now.status_code, then.status_code) == (200, 429)


def test_a_page_without_a_turn_says_so_in_words(
    client: Client, world: World, alpha: House, turns: QueryAdmission
) -> None:
    client.force_login(alpha.viewer)
    with turns.admit(alpha.organisation.pk):
        page = client.get(f"/apps/{alpha.app.pk}/hosts")
    assert page.status_code == 200
    assert "The numbers cannot be read now: 1 queries of your organisation are running" in page.content.decode()


def test_trying_the_expression_of_a_rule_waits_for_a_turn_and_rules_do_not(
    client: Client, world: World, alpha: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.force_login(alpha.owner)
    line = QueryAdmission(running_max=1, waiting_max=0)
    monkeypatch.setattr("alerts.expressions.shared_admission", lambda path: line)
    with line.admit(alpha.organisation.pk):
        page = client.get(f"/alerts/check?app={alpha.app.pk}&expr=vector(1)&comparator=>&threshold=0")
        assert [one.value for one in query_engine(alpha.app.pk, "vector(1)", LAST)] == [1.0]
    assert "1 queries of your organisation are running" in page.content.decode()


@pytest.mark.parametrize(
    ("error", "status", "again"),
    [
        (QueryTooLarge("too much"), 422, False),
        (QueryFailed("two alike"), 422, False),
        (QueryTimeout("late"), 503, True),
    ],
)
@pytest.mark.parametrize("way", ["query_range", "charts"])
def test_a_limit_has_the_same_status_and_words_by_every_way(
    client: Client,
    world: World,
    bearer: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    error: Exception,
    status: int,
    *,
    again: bool,
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("spm.query.promql.engine.Engine.range", fail)
    answer = EVERY[way](client, bearer, "m0", FIRST, LAST)
    assert (answer.status_code, json.loads(answer.content)["error"]) == (status, str(error))
    assert answer.has_header("Retry-After") is again


LIMITED = {
    "spm.limits.QUERY_SERIES_MAX": [way for way in EVERY if way not in NAMES],
    "spm.limits.QUERY_SAMPLES_MAX": ["query", "query_range", "read", "read, streamed", "charts", "export"],
}


@pytest.mark.parametrize(("limit", "way"), [(limit, way) for limit, ways in LIMITED.items() for way in ways])
def test_one_limit_over_is_422_by_every_way(
    client: Client, world: World, bearer: dict[str, str], monkeypatch: pytest.MonkeyPatch, limit: str, way: str
) -> None:
    monkeypatch.setattr(limit, 1)  # m0 has two series of a sample each
    answer = EVERY[way](client, bearer, "m0", FIRST, LAST)
    assert answer.status_code == 422, answer
    assert "narrow" in json.loads(answer.content)["error"]


# --- as of a time


@pytest.mark.parametrize("way", SAMPLES)
def test_samples_are_those_accepted_by_then(client: Client, world: World, bearer: dict[str, str], way: str) -> None:
    now = told(way, SAMPLES[way](client, bearer, "m0", FIRST, LAST))
    then = told(way, SAMPLES[way](client, bearer, "m0", FIRST, LAST, asof=before(world)))
    if way == "percentiles":  # of both series; within 1 %
        assert ([round(value) for value in now], [round(value) for value in then]) == ([3], [1])
    else:
        assert (now, then) == ({2.0, 4.0}, {1.0})


@pytest.mark.parametrize("way", NAMES)
def test_names_are_those_of_samples_accepted_by_then(
    client: Client, world: World, bearer: dict[str, str], way: str
) -> None:
    asked = {metric: NAMES[way](client, bearer, metric, FIRST, LAST, asof=before(world)) for metric in ("m0", "m1")}
    expected = {"series": [{"__name__": "m0", "n": "0"}], "labels": ["__name__", "n"], "label values": ["m0"]}[way]
    assert [names_told(asked["m0"]), names_told(asked["m1"])] == [expected, []]
    assert any("as accepted by 2023-" in info for info in json.loads(asked["m0"].content)["infos"])


def test_names_of_a_time_are_those_of_all_samples_in_it_however_far_apart(
    client: Client, bearer: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = World()
    made.send(*((number, number * 5 * HOUR + 1, 1.0) for number in range(9)))
    asof = str((made.clock.now_ms() + 1) / 1000)
    made.clock.advance(HOUR)
    made.send(*((number, 2, 1.0) for number in range(9, 12)))
    monkeypatch.setattr(query, "storage_for", lambda app: made.fresh())
    monkeypatch.setattr("spm.query.streaming.EXPORT_SERIES_AT_ONCE", 2)
    asked = {"match[]": ['m0{n!="3"}', '{__name__=~"m."}'], "asof": asof, "start": str(START / 1000 + 1)}
    found = names_told(client.get("/prometheus/api/v1/series", asked, headers=bearer))
    assert sorted(int(one["n"]) for one in found) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert {form_of(int(one["n"])) for one in found} <= {form_of(number) for number in range(9)}


# --- explanations


@pytest.mark.parametrize("way", EVERY)
def test_every_way_explains_what_it_rests_on(client: Client, world: World, bearer: dict[str, str], way: str) -> None:
    asof = before(world)
    answer = json.loads(body_of(EVERY[way](client, bearer, "m0", FIRST, LAST, explain="1", asof=asof)))
    assert answer["explain"]["asOf"].startswith("2023-")
    assert {"segments", "missing", "units", "lastHours", "retractions", "corrections"} <= answer["explain"].keys()
    assert [one["resolution"] for one in answer["explain"]["segments"]] == ["raw samples"]
    assert [unit["samplesNotCompacted"] for unit in answer["explain"]["units"]] == [1]  # by then


def test_federation_explains_instead_of_samples_what_these_rest_on(
    client: Client, world: World, bearer: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "_clock", world.clock)
    world.send(*((s, world.clock.now_ms() - START, 5.0) for s in (0, 3)))
    world.retract(series=3)
    asked = {"match[]": ["m0", "m1"]}
    samples = client.get("/prometheus/federate", asked, headers=bearer)
    answer = client.get("/prometheus/federate", {**asked, "explain": "1"}, headers=bearer)
    told = json.loads(answer.content)
    assert samples.content.startswith(b'# TYPE m0 untyped\nm0{instance="",n="0"} 5 ')
    assert samples["X-SPM-Infos"] == "; ".join(told["infos"])
    assert (answer.status_code, told["status"], told["data"]) == (200, "success", None)
    assert [one["resolution"] for one in told["explain"]["segments"]] == ["raw samples"]
    assert [one["inEffect"] for one in told["explain"]["retractions"]] == [True]
    assert [unit["samplesNotCompacted"] for unit in told["explain"]["units"]] == [2]


@pytest.mark.parametrize("way", ["read", "read, streamed", "export"])
def test_an_answer_without_room_says_in_its_headers_what_it_rests_on(
    client: Client, world: World, bearer: dict[str, str], way: str
) -> None:
    answer = SAMPLES[way](client, bearer, "m0", FIRST, LAST, asof=before(world))
    assert answer["X-SPM-Infos"].startswith("raw samples: 2023-")
    assert "; as accepted by 2023-" in answer["X-SPM-Infos"]
    body_of(answer)


def test_a_stream_is_in_the_order_of_labels_and_of_queries(
    client: Client, bearer: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = World()
    made.send(*((number, number + 1, float(number)) for number in range(60)))
    monkeypatch.setattr(query, "storage_for", lambda app: made.fresh())
    body = body_of(SAMPLES["read, streamed"](client, bearer, "m1", START, START + HOUR))
    labels = [labels["n"] for _, labels, _ in read_stream(body)]
    assert labels == sorted(str(number) for number in range(1, 60, 3))
