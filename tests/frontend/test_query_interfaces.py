"""Every query interface of an app: one query admission, one set of limits, `asof` and `explain`, readable errors."""

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
from tests.frontend.query_requests import NAMES, SAMPLES, body_of, names_of_response, values_of_response
from tests.model.world import START, World, form_of
from tests.spm.query.formats.remote_read_stream import read_stream
from tests.support.people import Tenant

EVERY = {**SAMPLES, **NAMES}
HOUR = 3_600_000
FIRST, LAST = START, START + 60_000


@pytest.fixture
def world(alpha: Tenant, monkeypatch: pytest.MonkeyPatch) -> World:
    """A store with a sample of m0, corrected an hour later, when m1 came as well, of the same time."""
    world = World()
    world.send((0, 1_000, 1.0))
    world.clock.advance(HOUR)
    world.send((0, 1_000, 2.0), (1, 1_000, 3.0), (3, 1_000, 4.0))
    monkeypatch.setattr(query, "storage_for", lambda app: world.fresh())
    return world


@pytest.fixture
def bearer(alpha: Tenant) -> dict[str, str]:
    return {"Authorization": f"Bearer {alpha.token}"}


@pytest.fixture
def admission(monkeypatch: pytest.MonkeyPatch) -> QueryAdmission:
    """One running query per organisation, and none may wait."""
    admission = QueryAdmission(running_max=1, waiting_max=0)
    monkeypatch.setattr(endpoint, "admission", admission)
    monkeypatch.setattr(queries, "admission", admission)
    return admission


def before(world: World) -> str:
    """A time between the first message and the correction."""
    return str((world.clock.now_ms() - HOUR // 2) / 1000)


# --- admission


ADMITTED = {
    name: send for name, send in EVERY.items() if name not in ("labels", "label values")
}  # these read no samples


@pytest.mark.parametrize("interface", ADMITTED)
def test_every_interface_waits_for_admission_and_ends_it(
    client: Client, world: World, alpha: Tenant, bearer: dict[str, str], admission: QueryAdmission, interface: str
) -> None:
    def ask() -> Any:
        return ADMITTED[interface](client, bearer, "m0", FIRST, LAST)

    with admission.admit(alpha.organisation.pk):
        refused = ask()
    assert refused.status_code == 429
    assert "1 queries of your organisation are running" in json.loads(refused.content)["error"]
    assert refused["Retry-After"]
    for _ in range(2):
        answer = ask()
        assert answer.status_code == 200
        body_of(answer)


@pytest.mark.parametrize("interface", ["labels", "label values"])
def test_names_of_a_time_are_read_from_samples_and_need_admission(
    client: Client, world: World, alpha: Tenant, bearer: dict[str, str], admission: QueryAdmission, interface: str
) -> None:
    with admission.admit(alpha.organisation.pk):
        now = NAMES[interface](client, bearer, "m0", FIRST, LAST)
        then = NAMES[interface](client, bearer, "m0", FIRST, LAST, asof=before(world))
    assert (now.status_code, then.status_code) == (200, 429)


def test_a_page_without_admission_says_so(
    client: Client, world: World, alpha: Tenant, admission: QueryAdmission
) -> None:
    client.force_login(alpha.viewer)
    with admission.admit(alpha.organisation.pk):
        page = client.get(f"/apps/{alpha.app.pk}/hosts")
    assert page.status_code == 200
    assert "The numbers cannot be read now: 1 queries of your organisation are running" in page.content.decode()


def test_checking_a_rules_expression_needs_admission_and_rules_do_not(
    client: Client, world: World, alpha: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.force_login(alpha.owner)
    admission = QueryAdmission(running_max=1, waiting_max=0)
    monkeypatch.setattr("alerts.expressions.shared_admission", lambda path: admission)
    with admission.admit(alpha.organisation.pk):
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
@pytest.mark.parametrize("interface", ["query_range", "charts"])
def test_a_limit_has_one_status_and_text_in_every_interface(
    client: Client,
    world: World,
    bearer: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    interface: str,
    error: Exception,
    status: int,
    *,
    again: bool,
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("spm.query.promql.engine.Engine.range", fail)
    answer = EVERY[interface](client, bearer, "m0", FIRST, LAST)
    assert (answer.status_code, json.loads(answer.content)["error"]) == (status, str(error))
    assert answer.has_header("Retry-After") is again


LIMITED = {
    "spm.limits.QUERY_SERIES_MAX": [name for name in EVERY if name not in NAMES],
    "spm.limits.QUERY_SAMPLES_MAX": ["query", "query_range", "read", "read, streamed", "charts", "export"],
}


@pytest.mark.parametrize(("limit", "interface"), [(limit, name) for limit, names in LIMITED.items() for name in names])
def test_one_over_a_limit_is_422_in_every_interface(
    client: Client, world: World, bearer: dict[str, str], monkeypatch: pytest.MonkeyPatch, limit: str, interface: str
) -> None:
    monkeypatch.setattr(limit, 1)  # m0 has two series of a sample each
    answer = EVERY[interface](client, bearer, "m0", FIRST, LAST)
    assert answer.status_code == 422, answer
    assert "narrow" in json.loads(answer.content)["error"]


# --- as of a time


@pytest.mark.parametrize("interface", SAMPLES)
def test_samples_are_those_accepted_by_then(
    client: Client, world: World, bearer: dict[str, str], interface: str
) -> None:
    now = values_of_response(interface, SAMPLES[interface](client, bearer, "m0", FIRST, LAST))
    then = values_of_response(interface, SAMPLES[interface](client, bearer, "m0", FIRST, LAST, asof=before(world)))
    if interface == "percentiles":  # of both series; within 1 %
        assert ([round(value) for value in now], [round(value) for value in then]) == ([3], [1])
    else:
        assert (now, then) == ({2.0, 4.0}, {1.0})


@pytest.mark.parametrize("interface", NAMES)
def test_names_are_those_of_samples_accepted_by_then(
    client: Client, world: World, bearer: dict[str, str], interface: str
) -> None:
    answers = {
        metric: NAMES[interface](client, bearer, metric, FIRST, LAST, asof=before(world)) for metric in ("m0", "m1")
    }
    expected = {"series": [{"__name__": "m0", "n": "0"}], "labels": ["__name__", "n"], "label values": ["m0"]}[
        interface
    ]
    assert [names_of_response(answers["m0"]), names_of_response(answers["m1"])] == [expected, []]
    assert any("as accepted by 2023-" in info for info in json.loads(answers["m0"].content)["infos"])


def test_names_of_a_time_are_those_of_all_samples_in_it_however_far_apart(
    client: Client, bearer: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    world.send(*((number, number * 5 * HOUR + 1, 1.0) for number in range(9)))
    asof = str((world.clock.now_ms() + 1) / 1000)
    world.clock.advance(HOUR)
    world.send(*((number, 2, 1.0) for number in range(9, 12)))
    monkeypatch.setattr(query, "storage_for", lambda app: world.fresh())
    monkeypatch.setattr("spm.query.streaming.EXPORT_SERIES_AT_ONCE", 2)
    parameters = {"match[]": ['m0{n!="3"}', '{__name__=~"m."}'], "asof": asof, "start": str(START / 1000 + 1)}
    series = names_of_response(client.get("/prometheus/api/v1/series", parameters, headers=bearer))
    assert sorted(int(one["n"]) for one in series) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert {form_of(int(one["n"])) for one in series} <= {form_of(number) for number in range(9)}


# --- explanations


@pytest.mark.parametrize("interface", EVERY)
def test_every_interface_explains_its_provenance(
    client: Client, world: World, bearer: dict[str, str], interface: str
) -> None:
    asof = before(world)
    answer = json.loads(body_of(EVERY[interface](client, bearer, "m0", FIRST, LAST, explain="1", asof=asof)))
    assert answer["explain"]["asOf"].startswith("2023-")
    assert {"segments", "missing", "units", "lastHours", "retractions", "corrections"} <= answer["explain"].keys()
    assert [one["resolution"] for one in answer["explain"]["segments"]] == ["raw samples"]
    assert [unit["samplesNotCompacted"] for unit in answer["explain"]["units"]] == [1]  # by then


def test_federation_explains_the_provenance_of_its_samples(
    client: Client, world: World, bearer: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "_clock", world.clock)
    world.send(*((s, world.clock.now_ms() - START, 5.0) for s in (0, 3)))
    world.retract(series=3)
    parameters = {"match[]": ["m0", "m1"]}
    samples = client.get("/prometheus/federate", parameters, headers=bearer)
    answer = client.get("/prometheus/federate", {**parameters, "explain": "1"}, headers=bearer)
    explanation = json.loads(answer.content)
    assert samples.content.startswith(b'# TYPE m0 untyped\nm0{instance="",n="0"} 5 ')
    assert samples["X-SPM-Infos"] == "; ".join(explanation["infos"])
    assert (answer.status_code, explanation["status"], explanation["data"]) == (200, "success", None)
    assert [one["resolution"] for one in explanation["explain"]["segments"]] == ["raw samples"]
    assert [one["inEffect"] for one in explanation["explain"]["retractions"]] == [True]
    assert [unit["samplesNotCompacted"] for unit in explanation["explain"]["units"]] == [2]


@pytest.mark.parametrize("interface", ["read", "read, streamed", "export"])
def test_an_answer_without_annotations_has_its_provenance_in_headers(
    client: Client, world: World, bearer: dict[str, str], interface: str
) -> None:
    answer = SAMPLES[interface](client, bearer, "m0", FIRST, LAST, asof=before(world))
    assert answer["X-SPM-Infos"].startswith("raw samples: 2023-")
    assert "; as accepted by 2023-" in answer["X-SPM-Infos"]
    body_of(answer)


def test_a_stream_is_in_the_order_of_labels_and_of_queries(
    client: Client, bearer: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    world.send(*((number, number + 1, float(number)) for number in range(60)))
    monkeypatch.setattr(query, "storage_for", lambda app: world.fresh())
    body = body_of(SAMPLES["read, streamed"](client, bearer, "m1", START, START + HOUR))
    labels = [labels["n"] for _, labels, _ in read_stream(body)]
    assert labels == sorted(str(number) for number in range(1, 60, 3))
