"""As-of questions by Prometheus' API: answers as accepted by a time, said so, and clear failures."""

from typing import Any

import pytest
from django.test import Client

from spm import query
from spm.accounts import tokens
from spm.accounts.models import App, Organisation
from tests.contracts.test_prometheus_api import API, read
from tests.model.world import START, World
from tests.support import process_state

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.contracts.prometheus_urls")]
AT = str(START / 1000 + 60)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A store with a sample, corrected later, in the place of the app's."""
    world = World()
    world.send((0, 1_000, 1.0))
    world.clock.advance(3_600_000)
    world.send((0, 1_000, 2.0))
    monkeypatch.setattr(query, "storage_for", lambda app: world.fresh())
    return world


@pytest.fixture
def bearer(world: World) -> dict[str, str]:
    process_state.forget_tokens()
    app = App.objects.create(organisation=Organisation.objects.create(name="Ours"), name="shop")
    return {"Authorization": f"Bearer {tokens.issue(app, name='grafana', scopes=['read'])[1]}"}


def test_an_answer_as_of_a_time_knows_nothing_accepted_later(
    client: Client, world: World, bearer: dict[str, str]
) -> None:
    before = (world.clock.now_ms() - 1_800_000) / 1000
    now = read(client.get(API + "query", {"query": "m0", "time": AT}, headers=bearer))
    then = read(client.get(API + "query", {"query": "m0", "time": AT, "asof": str(before)}, headers=bearer))
    assert [now["data"]["result"][0]["value"][1], then["data"]["result"][0]["value"][1]] == ["2", "1"]
    assert any(info.startswith("as accepted by 2023-") for info in then["infos"])
    assert not any("accepted" in info for info in now["infos"])
    parameters = {"query": "m0", "start": AT, "end": AT, "step": "60", "asof": str(before)}
    ranged = read(client.post(API + "query_range", parameters, headers=bearer))
    assert ranged["data"]["result"][0]["values"][0][1] == "1"


@pytest.mark.parametrize(
    ("asof", "why"),
    [
        ("4102444800", "2100-01-01T00:00Z is in the future"),
        ("tomorrow", '"tomorrow" to a valid'),
        ("2023-01-01T00:00:00", "no time zone"),
    ],
)
def test_a_time_to_come_or_none_at_all_is_a_400(client: Client, bearer: dict[str, str], asof: str, why: str) -> None:
    answer = read(client.get(API + "query", {"query": "m0", "asof": asof}, headers=bearer), 400)
    assert answer["errorType"] == "bad_data"
    assert why in answer["error"]


def answered(client: Client, bearer: dict[str, str], **parameters: str) -> Any:
    """The answer to an instant query."""
    return read(client.get(API + "query", parameters, headers=bearer))


def test_a_retraction_in_effect_is_named(client: Client, world: World, bearer: dict[str, str]) -> None:
    world.retract(source="host")
    answer = answered(client, bearer, query="m0", time=AT)
    assert answer["data"]["result"] == []
    assert any(info.startswith("1 retraction in effect: ") for info in answer["infos"])
