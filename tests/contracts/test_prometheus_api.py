"""Prometheus' HTTP API over a storage in memory: what Grafana calls, who may call, and how failures look."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from ingest.exemplars.storage import ExemplarNote, ExemplarWriter
from ingest.models import MetricDescription
from spm import query
from spm.accounts import tokens
from spm.accounts.models import App, Membership, Organisation
from spm.errors import StoreUnavailable
from spm.query.fake import FakeStorage
from spm.wire import Exemplar, canonical
from tests.support import process_state

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.contracts.prometheus_urls")]
API = "/prometheus/api/v1/"


@pytest.fixture
def app() -> App:
    process_state.forget_tokens()
    return App.objects.create(organisation=Organisation.objects.create(name="Ours"), name="shop")


@pytest.fixture
def storages(monkeypatch: pytest.MonkeyPatch) -> dict[int, FakeStorage]:
    """Storages by app, in the place of the tables."""
    answer: dict[int, FakeStorage] = {}
    monkeypatch.setattr(query, "storage_for", lambda app: answer.setdefault(app, FakeStorage()))
    return answer


@pytest.fixture
def ours(app: App, storages: dict[int, FakeStorage]) -> FakeStorage:
    up = (
        FakeStorage()
        .add("up", {"job": "a", "my.label": "x"}, [1_000, 2_000], [1, 0])
        .add("up", {"job": "b"}, [1_000], [3])
    )
    return storages.setdefault(app.pk, up.add("load", {}, [1_000], [0.5]))


@pytest.fixture
def bearer(app: App, ours: FakeStorage) -> dict[str, str]:
    _, secret = tokens.issue(app, name="grafana", scopes=["read"])
    return {"Authorization": f"Bearer {secret}"}


def read(response: Any, status: int = 200) -> Any:
    assert response.status_code == status, response.content
    return json.loads(response.content)


def test_save_and_test_of_grafana_passes(client: Client, bearer: dict[str, str]) -> None:
    answer = client.post(API + "query", {"query": "1+1", "time": "4"}, headers=bearer)
    assert read(answer) == {"status": "success", "data": {"resultType": "scalar", "result": [4, "2"]}}
    info = read(client.get(API + "status/buildinfo", headers=bearer))["data"]
    assert info["version"]
    assert "features" not in info


def test_features_have_the_names_of_prometheus_and_say_what_is_not_there(
    client: Client, bearer: dict[str, str]
) -> None:
    features = read(client.get(API + "features", headers=bearer))["data"]
    assert features["api"]["remote_write_receiver"]
    assert features["promql_functions"]["rate"]
    assert not features["promql_functions"]["histogram_avg"]
    assert features["promql_operators"]["topk"]
    assert features["tsdb"] == {"exemplar_storage": True, "native_histograms": False}


def test_query_answers_get_and_form_alike(client: Client, bearer: dict[str, str]) -> None:
    parameters = {"query": "sum(up)", "time": "1970-01-01T00:00:01Z"}
    by_get, by_form = (read(call(API + "query", parameters, headers=bearer)) for call in (client.get, client.post))
    assert by_get == by_form
    assert by_get["data"] == {"resultType": "vector", "result": [{"metric": {}, "value": [1, "4"]}]}


def test_query_range_gives_a_matrix(client: Client, bearer: dict[str, str]) -> None:
    parameters = {"query": 'up{job="a"}', "start": "0", "end": "2", "step": "1s"}
    data = read(client.post(API + "query_range", parameters, headers=bearer))["data"]
    assert data["resultType"] == "matrix"
    assert data["result"][0]["values"] == [[1, "1"], [2, "0"]]


def test_names_are_listed_sorted(client: Client, bearer: dict[str, str]) -> None:
    assert read(client.post(API + "labels", headers=bearer))["data"] == ["__name__", "job", "my.label"]
    assert read(client.get(API + "label/__name__/values", headers=bearer))["data"] == ["load", "up"]
    assert read(client.get(API + "label/U__my_2e_label/values", headers=bearer))["data"] == ["x"]
    matched = client.get(API + "label/job/values", {"match[]": 'up{job!="a"}'}, headers=bearer)
    assert read(matched)["data"] == ["b"]


def test_series_that_match_any_selector_are_listed_up_to_the_limit(client: Client, bearer: dict[str, str]) -> None:
    parameters = {"match[]": ["load", 'up{job="b"}'], "limit": "1"}
    answer = read(client.post(API + "series", parameters, headers=bearer))
    assert answer["data"] == [{"__name__": "load"}]
    assert answer["warnings"] == ["results truncated due to limit"]


def test_metadata_returns_types_and_help_texts_of_senders(app: App, client: Client, bearer: dict[str, str]) -> None:
    said = {"type": "gauge", "help": "Whether it is up.", "unit": ""}
    MetricDescription.objects.create(app=app, metric="up", **said)
    answer = read(client.get(API + "metadata", headers=bearer))["data"]
    assert answer == {"up": [said], "load": [{"type": "unknown", "help": "", "unit": ""}]}
    assert read(client.get(API + "metadata?metric=up", headers=bearer))["data"] == {"up": [said]}


def test_metadata_knows_what_names_tell(client: Client, bearer: dict[str, str]) -> None:
    unknown = [{"type": "unknown", "help": "", "unit": ""}]
    assert read(client.get(API + "metadata", headers=bearer))["data"] == {"load": unknown, "up": unknown}


def test_exemplars_of_each_selector_of_a_query_are_listed_as_prometheus_does(
    app: App, client: Client, bearer: dict[str, str]
) -> None:
    stored = [Exemplar(canonical("up", {"job": "a"}), 1_500 + n, 0.1, (("trace_id", str(n)),)) for n in range(2)]
    stored.append(Exemplar(canonical("load", {}), 2_000, 1e6, ()))
    ExemplarWriter().write({app.pk: {one: ExemplarNote(one, 1_700_000_000_000, "s") for one in stored}})
    query = {"query": 'sum(rate(up{job="a"}[5m])) / on() (load or up{job="a"} offset 1h)', "start": "1.501", "end": "2"}
    expected = [
        {"seriesLabels": {"__name__": "load"}, "exemplars": [{"labels": {}, "value": "1000000", "timestamp": 2}]},
        {
            "seriesLabels": {"__name__": "up", "job": "a"},
            "exemplars": [{"labels": {"trace_id": "1"}, "value": "0.1", "timestamp": 1.501}],
        },
    ]
    for ask in (client.get, client.post):
        assert read(ask(API + "query_exemplars", query, headers=bearer))["data"] == expected
    none = client.get(API + "query_exemplars", {"query": "1"}, headers=bearer)
    assert read(none) == {"status": "success", "data": []}
    assert read(client.get(API + "query_exemplars", {**query, "start": "3"}, headers=bearer), 400)["error"] == (
        'invalid parameter "end": end timestamp must not be before start time'
    )


RANGE = {"query": "up", "start": "0", "end": "1", "step": "1"}


@pytest.mark.parametrize(
    ("path", "parameters", "words"),
    [
        ("query_range", {**RANGE, "end": "-1"}, 'invalid parameter "end": end timestamp must not be before start time'),
        ("query_range", {**RANGE, "step": "-1"}, 'invalid parameter "step": zero or negative query resolution'),
        ("query_range", {**RANGE, "query": "up[1m]"}, 'invalid parameter "query": invalid expression type "range vec'),
        ("query", {"query": "up", "asof": "zzz"}, 'invalid parameter "asof": cannot parse "zzz"'),
        (
            "query",
            {"query": "up", "timeout": "-1"},
            'invalid parameter "timeout": it must be positive, 1ms or more, not -1',
        ),
        ("query", {"query": "up", "lookback_delta": "0s"}, 'invalid parameter "lookback_delta": it must be positive'),
        ("query_exemplars", {"query": "sum("}, 'invalid parameter "query": 1:5: parse error: '),
        ("series", {"match[]": "up{"}, 'invalid parameter "match[]": 1:4: parse error: '),
        ("series", {"match[]": "up offset 5m"}, 'invalid parameter "match[]": not a selector of series'),
        ("series", {"match[]": "up @ 5"}, 'invalid parameter "match[]": not a selector of series'),
        ("series", {"match[]": "(up)"}, 'invalid parameter "match[]": not a selector of series'),
        ("series", {"match[]": "up[5m]"}, 'invalid parameter "match[]": not a selector of series'),
    ],
)
def test_an_error_names_the_wrong_parameter(
    client: Client, bearer: dict[str, str], path: str, parameters: dict[str, str], words: str
) -> None:
    answer = read(client.get(API + path, parameters, headers=bearer), 400)
    assert answer["errorType"] == "bad_data"
    assert answer["error"].startswith(words)


def test_metadata_of_a_limit_below_zero_is_all(client: Client, bearer: dict[str, str]) -> None:
    every = read(client.get(API + "metadata", headers=bearer))["data"]
    assert read(client.get(API + "metadata", {"limit": "-1"}, headers=bearer))["data"] == every != {}
    read(client.get(API + "metadata", {"limit": "-x"}, headers=bearer), 400)


@pytest.mark.urls("spm.web.urls")
def test_missing_endpoints_answer_in_prometheus_form(client: Client, bearer: dict[str, str]) -> None:
    for path in ("nothing", "query/", "../../x", "label/a/b/values"):
        for method in (client.get, client.post, client.delete):
            assert read(method(API + path, headers=bearer), 404)["errorType"] == "not_found"


def test_token_may_be_the_password_of_any_user(client: Client, bearer: dict[str, str]) -> None:
    pair = base64.b64encode(b"any:" + bearer["Authorization"].split()[1].encode()).decode()
    assert read(client.get(API + "labels", headers={"Authorization": f"Basic {pair}"}))["data"]


@pytest.mark.parametrize(
    ("path", "parameters", "status", "kind"),
    [
        ("query", {"query": "sum("}, 400, "bad_data"),
        ("query", {}, 400, "bad_data"),
        ("query", {"query": "up", "time": "noon"}, 400, "bad_data"),
        ("query", {"query": "up * on () up", "time": "1"}, 422, "execution"),
        ("query", {"query": "up", "time": "1", "timeout": "0s"}, 400, "bad_data"),
        ("query_range", {"query": "up", "start": "0", "end": "1", "step": "9" * 5_000 + "s"}, 400, "bad_data"),
        ("query_range", {"query": "up", "start": "0", "end": "11001", "step": "1"}, 400, "bad_data"),
        ("query_range", {"query": "up", "start": "0", "end": "1", "step": "0"}, 400, "bad_data"),
        ("query_range", {"query": "up", "start": "1", "end": "0", "step": "1"}, 400, "bad_data"),
        ("query_range", {"query": "up", "start": "1", "end": "0"}, 400, "bad_data"),
        ("series", {"match[]": "1+1"}, 400, "bad_data"),
        ("labels", {"limit": "-1"}, 400, "bad_data"),
    ],
)
def test_failure_has_the_form_of_prometheus(
    client: Client, bearer: dict[str, str], path: str, parameters: dict[str, str], status: int, kind: str
) -> None:
    answer = read(client.get(API + path, parameters, headers=bearer), status)
    assert (answer["status"], answer["errorType"]) == ("error", kind)
    assert answer["error"]


def test_store_that_does_not_answer_is_a_503(
    client: Client, bearer: dict[str, str], ours: FakeStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(*_: object, **__: object) -> None:
        raise StoreUnavailable("no answer")

    monkeypatch.setattr(ours, "select", unavailable)
    assert read(client.get(API + "query", {"query": "up"}, headers=bearer), 503)["errorType"] == "unavailable"


@pytest.mark.parametrize("header", [None, "Bearer nonsense", "Bearer spm_a_b"])
def test_call_without_a_good_token_is_a_401(client: Client, ours: FakeStorage, header: str | None) -> None:
    headers = {"Authorization": header} if header else {}
    assert read(client.get(API + "query", {"query": "1"}, headers=headers), 401)["errorType"] == "unauthorized"


def test_token_that_only_sends_may_not_read(client: Client, app: App, ours: FakeStorage) -> None:
    _, secret = tokens.issue(app, name="agent", scopes=["ingest"])
    read(client.get(API + "labels", headers={"Authorization": f"Bearer {secret}"}), 401)


def test_token_reads_its_own_app_whatever_is_asked_for(
    client: Client, app: App, bearer: dict[str, str], storages: dict[int, FakeStorage]
) -> None:
    other = App.objects.create(organisation=app.organisation, name="other")
    storages[other.pk] = FakeStorage().add("secret", {}, [1_000], [1])
    for headers in (bearer, bearer | {"X-Scope-OrgID": str(other.pk)}):
        names = read(client.get(API + "label/__name__/values", {"app": str(other.pk)}, headers=headers))["data"]
        assert names == ["load", "up"]


def test_session_reads_the_apps_of_its_organisations_only(client: Client, app: App, ours: FakeStorage) -> None:
    person = User.objects.create_user("ann")
    foreign = App.objects.create(organisation=Organisation.objects.create(name="Theirs"), name="x")
    Membership.objects.create(organisation=app.organisation, user=person, role="viewer")
    client.force_login(person)
    assert read(client.get(API + "label/job/values", {"app": str(app.pk)}))["data"] == ["a", "b"]
    assert read(client.get(API + "labels", {"app": str(foreign.pk)}), 404)["errorType"] == "not_found"


def test_form_of_a_session_needs_the_csrf_token(app: App, ours: FakeStorage) -> None:
    person = User.objects.create_user("ann")
    Membership.objects.create(organisation=app.organisation, user=person, role="viewer")
    client = Client(enforce_csrf_checks=True)
    client.force_login(person)
    assert read(client.post(API + "query", {"query": "1", "app": str(app.pk)}), 401)["errorType"] == "unauthorized"
    client.cookies["csrftoken"] = "a" * 32
    assert read(client.post(API + "query", {"query": "1"}, headers={"X-CSRFToken": "a" * 32}))["status"] == "success"


def test_other_methods_are_refused(client: Client, bearer: dict[str, str]) -> None:
    for path, wanted in (("query", "GET, POST"), ("federate", "GET, POST"), ("read", "POST")):
        refused = client.put((API + path).replace("api/v1/federate", "federate"), headers=bearer)
        assert (read(refused, 405)["status"], refused["Allow"]) == ("error", wanted)
