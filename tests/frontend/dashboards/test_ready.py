"""Ready dashboards: each is offered to its sender alone, and every query of it gives numbers on what that sends."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from django.http import HttpRequest
from django.test import Client

from frontend.dashboards import storage
from frontend.dashboards.catalogue import AppCatalogue
from frontend.dashboards.document import Document, check
from frontend.dashboards.drawing import drawn
from frontend.dashboards.models import Dashboard
from frontend.dashboards.ready.offers import READY, find, offered, suiting
from frontend.dashboards.variables import settle
from frontend.presenters.charts import draw
from frontend.queries import QuerySession, query_session
from ingest.accept.stamper import Stamper, take_process
from ingest.writer import Writer
from spm.clock import SystemClock, random_bytes
from spm.query.promql.planning.planner import parse
from spm.store.backends import open_backend
from spm.store.keys import PlacementTable
from tests.frontend.dashboards.senders import SENDERS, STEP_S, STEPS, messages
from tests.support.people import Tenant

KEYS = [each.key for each in READY]


def fill(store_url: str, app_id: int, sender: str, now_ms: int) -> None:
    """Write ten minutes of a sender."""
    backend = open_backend(store_url)
    stamper = Stamper(take_process(backend), SystemClock())
    writer = Writer(backend, PlacementTable())
    writer.write(
        [
            stamper.stamp_message(app=app_id, source="sender", parsed=parsed, message_id=random_bytes(16))
            for parsed in messages(sender, now_ms)
        ]
    )


def document_of(key: str) -> Document:
    return find(key).document()


def numbers_of(session: QuerySession, document: Document, now_ms: int) -> Iterator[tuple[str, str, Any]]:
    """Yield each query of a document with its unit and its values of the last ten minutes."""
    variables = settle(document.variables, {}, AppCatalogue(session, now_ms))
    assert {each.problem or str(bool(each.options)) for each in variables} == {"True"}
    for panel in drawn(document, variables):
        assert not panel.problem
        for query in panel.queries:
            query_of_panel = {"expr": query["expr"], "start": now_ms - STEP_S * STEPS * 1000, "end": now_ms}
            yield query["expr"], panel.spec.unit, draw(session, now_ms, query_of_panel).columns.values


def test_every_ready_dashboard_has_a_sender_whose_data_tries_it() -> None:
    assert list(SENDERS) == KEYS


@pytest.mark.parametrize("key", KEYS)
def test_every_query_gives_numbers_on_what_the_sender_sends(key: str, alpha: Tenant, settings: Any) -> None:
    now_ms = SystemClock().now_ms()
    fill(settings.SPM_STORE_URL, alpha.app.pk, key, now_ms)
    assert [each.key for each in offered(alpha.app.pk, now_ms)] == [key]
    with query_session(alpha.app, HttpRequest()) as session:
        for expr, unit, values in numbers_of(session, document_of(key), now_ms):
            finite = values[np.isfinite(values)]
            assert finite.size, f"no number: {expr}"
            assert unit != "percent" or 0 <= finite.min() <= finite.max() <= 100, expr


@pytest.mark.parametrize("key", KEYS)
def test_a_document_is_what_an_editor_could_have_saved(key: str) -> None:
    document = document_of(key)
    assert check(document.as_dict()) == document
    cells = [
        (column, row)
        for each in document.panels
        for column in range(each.x, each.x + each.w)
        for row in range(each.y, each.y + each.h)
    ]
    assert len(cells) == len(set(cells))
    for panel in document.panels:
        for query in panel.queries:
            plain = query.expr.replace("$__rate_interval", "1m").replace("$window", "1m").replace("$__range", "1h")
            parse(plain)
            assert set(query.legend.replace("{{", "").replace("}}", "")) or panel.kind == "stat"


def test_an_app_that_lacks_one_sign_is_offered_nothing() -> None:
    for ready in READY:
        assert ready.key not in [each.key for each in suiting(ready.signs[1:])]


def test_a_copy_is_one_click_and_an_editors_own(desk: Client, alpha: Tenant, settings: Any) -> None:
    root = f"/apps/{alpha.app.pk}/dashboards"
    assert b"Hosts, by Telegraf" not in desk.get(root).content
    fill(settings.SPM_STORE_URL, alpha.app.pk, "host-telegraf", SystemClock().now_ms())
    assert b"Hosts, by Telegraf" in desk.get(root).content
    assert b"Hosts, by Telegraf" in desk.get(f"/apps/{alpha.app.pk}/").content
    answer = desk.post(root, {"ready": "host-telegraf"})
    copy = Dashboard.objects.get()
    assert (answer["Location"], copy.title) == (f"{root}/{copy.uid}", "Hosts, by Telegraf")
    assert storage.document_of(copy) == document_of("host-telegraf")
    assert b"ready=" not in desk.get(f"/apps/{alpha.app.pk}/").content  # Home offers them while there is none
    assert desk.post(root, {"ready": "no-such"}).status_code == 400


def test_nothing_is_offered_by_what_another_tenant_sends(alpha: Tenant, beta: Tenant, settings: Any) -> None:
    now_ms = SystemClock().now_ms()
    fill(settings.SPM_STORE_URL, beta.app.pk, "host-node", now_ms)
    assert offered(alpha.app.pk, now_ms) == []
