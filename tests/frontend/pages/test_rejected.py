"""Rejections, quotas and heartbeats of an app, for its people and programs only."""

import html
import re

import numpy as np
import pytest
from django.conf import settings
from django.test import Client

from ingest.http import pings
from ingest.models import Heartbeat, RejectedLine
from spm.accounts.models import App, AuditEntry
from spm.clock import SystemClock
from spm.query.promql.planning.planner import parse
from spm.store.backends import open_backend
from spm.store.ledger import quota
from spm.wire import Rejection
from tests.support import notes, sample_app
from tests.support.people import Tenant

pytestmark = pytest.mark.django_db
NOW_MS = 1_700_000_000_000


@pytest.fixture(autouse=True)
def _rejected(alpha: Tenant, beta: Tenant) -> None:
    lines = [Rejection(3, "a field has no =", "cpu <b>x</b>"), Rejection(0, "a new series over the quota", 'm{a="1"}')]
    for source in ("web-1", "web-2"):
        notes.see_rejections(alpha.app.pk, source, lines, NOW_MS, "telegraf")
    notes.see_rejections(beta.app.pk, "secret-host", [Rejection(1, "theirs", "their line")], NOW_MS)


def test_the_page_counts_reasons_and_lists_lines_of_one(desk: Client, alpha: Tenant) -> None:
    place = f"/apps/{alpha.app.pk}/data/rejected"
    page = desk.get(place).content.decode()
    assert "By reason" in page
    assert "cpu &lt;b&gt;x&lt;/b&gt;" in page
    assert "telegraf" in page
    assert "their line" not in page
    one = desk.get(place, {"reason": "a field has no ="}).content.decode()
    assert one.count('data-name="By"') == 2


def test_rejected_lines_have_pages_of_fifty(desk: Client, alpha: Tenant) -> None:
    lines = [Rejection(number, "a field has no =", f"cpu line-{number:03}") for number in range(60)]
    notes.see_rejections(alpha.app.pk, "web-3", lines, NOW_MS)
    place = f"/apps/{alpha.app.pk}/data/rejected?reason=a+field+has+no+%3D"
    first = desk.get(place).content.decode()
    older = re.search(r'href="(\?reason=[^"]*before=\d+)">Older lines', first)
    assert older
    second = desk.get(place.split("?")[0] + html.unescape(older[1])).content.decode()
    assert ("line-059" in first, "line-010" in first, "line-009" in first.split("Newest first")[1]) == (
        True,
        True,
        False,
    )
    assert ("line-009" in second, "line-010" in second, "Older lines" in second) == (True, False, False)
    assert "line-000" in second
    assert desk.get(f"{place}&before=x").content.decode().count("line-0") == first.count("line-0")


def test_the_page_shows_quotas_and_says_when_they_are_used_up(desk: Client, alpha: Tenant) -> None:
    place = f"/apps/{alpha.app.pk}/data/rejected"
    assert "not counted yet" in desk.get(place).content.decode()
    App.objects.filter(pk=alpha.app.pk).update(series_max=2)
    store = open_backend(settings.SPM_STORE_URL)
    for _ in range(2):
        quota.take_series(store, alpha.app.pk, wanted=1, quota=2, now_ms=NOW_MS)
    assert "new series are rejected" in desk.get(place).content.decode()


def test_the_page_counts_the_series_that_there_are_not_those_that_are_reserved(desk: Client, alpha: Tenant) -> None:
    now_ms = SystemClock().now_ms()
    lines = [sample_app.Line("m", {"n": str(number)}, np.array([1.0])) for number in range(7)]
    sample_app.write_lines(settings.SPM_STORE_URL, alpha.app.pk, "web-1", lines, np.array([now_ms]))
    quota.take_series(open_backend(settings.SPM_STORE_URL), alpha.app.pk, wanted=1, quota=9_000, now_ms=now_ms)
    page = desk.get(f"/apps/{alpha.app.pk}/data/rejected").content.decode()
    assert "<dd>7 of 500,000" in page


def test_programs_read_rejections_reasons_and_quotas(client: Client, alpha: Tenant) -> None:
    headers = {"Authorization": f"Bearer {alpha.token}"}
    answer = client.get(f"/api/v1/apps/{alpha.app.pk}/rejections", {"limit": 3}, headers=headers).json()
    assert [(each["count"], each["sources"]) for each in answer["reasons"]] == [(2, 2), (2, 2)]
    assert (len(answer["rejections"]), answer["rejections"][0]["source"]) == (3, "web-2")
    assert answer["stored_max"] == answer["kept"] == 1_000  # kept: its old name
    assert answer["quota"] == {"series": None, "series_max": 500_000, "samples_per_s": None}


@pytest.mark.parametrize("limit", ["0", "1001", "x"])
def test_an_invalid_limit_is_a_bad_request(limit: str, client: Client, alpha: Tenant) -> None:
    headers = {"Authorization": f"Bearer {alpha.token}"}
    place = f"/api/v1/apps/{alpha.app.pk}/rejections"
    assert client.get(place, {"limit": limit}, headers=headers).status_code == 400


def test_rejections_of_others_are_not_found(desk: Client, alpha: Tenant, beta: Tenant) -> None:
    headers = {"Authorization": f"Bearer {alpha.token}"}
    assert desk.get(f"/apps/{beta.app.pk}/data/rejected").status_code == 404
    assert Client().get(f"/api/v1/apps/{beta.app.pk}/rejections", headers=headers).status_code == 404


def test_editors_create_see_and_delete_heartbeats(desk: Client, alpha: Tenant) -> None:
    place = f"/apps/{alpha.app.pk}/heartbeats"
    assert desk.post(place, {"name": "nightly"}).status_code == 302
    heartbeat = Heartbeat.objects.get(app=alpha.app)
    assert f"/ping/{heartbeat.key}/start" in desk.get(place).content.decode()
    assert desk.post(place, {"name": "nightly"}).status_code == 409
    assert desk.post(f"{place}/{heartbeat.pk}/delete").status_code == 302
    assert not Heartbeat.objects.exists()
    assert list(AuditEntry.objects.values_list("action", flat=True))[:2] == ["heartbeat deleted", "heartbeat made"]


@pytest.mark.parametrize(
    ("act", "text", "badge"),
    [
        ("success", "succeeded", "up"),
        ("0", "succeeded", "up"),
        ("start", "started", "up"),
        ("fail", "failed", "gone"),
        ("137", "failed: exit code 137", "gone"),
    ],
)
def test_a_heartbeat_shows_its_last_result(desk: Client, alpha: Tenant, act: str, text: str, badge: str) -> None:
    heartbeat = pings.create_heartbeat(alpha.app, "nightly", actor=alpha.owner, now_ms=NOW_MS)
    place = f"/apps/{alpha.app.pk}/heartbeats"
    assert "no call yet" in desk.get(place).content.decode()
    Heartbeat.objects.filter(pk=heartbeat.pk).update(last_ms=NOW_MS, last_act=act)
    assert f'<span class="badge {badge}">{text}</span>' in desk.get(place).content.decode()


def test_alerts_for_a_heartbeat_are_expressions_whatever_its_name_is(desk: Client, alpha: Tenant) -> None:
    pings.create_heartbeat(alpha.app, 'the "big" \\ one', actor=alpha.owner, now_ms=NOW_MS)
    page = html.unescape(desk.get(f"/apps/{alpha.app.pk}/heartbeats").content.decode())
    shown = re.findall(r'<code id="(?:late|failed)-\d+">([^<]+)</code>', page)
    assert [str(parse(text)) != "" for text in shown] == [True, True]
    assert all('monitor="the \\"big\\" \\\\ one"' in text for text in shown)


def test_a_heartbeat_has_a_name_of_one_line(desk: Client, alpha: Tenant) -> None:
    place = f"/apps/{alpha.app.pk}/heartbeats"
    for name in ("two\nlines", "ü" * 120, " "):
        answer = desk.post(place, {"name": name})
        assert (name, answer.status_code) == (name, 302 if name[0] == "ü" else 400)


def test_viewers_see_no_address_and_create_none(client: Client, alpha: Tenant) -> None:
    heartbeat = pings.create_heartbeat(alpha.app, "nightly", actor=alpha.owner, now_ms=NOW_MS)
    client.force_login(alpha.viewer)
    place = f"/apps/{alpha.app.pk}/heartbeats"
    page = client.get(place).content.decode()
    assert "nightly" in page
    assert str(heartbeat.key) not in page
    assert client.post(place, {"name": "x"}).status_code == 403
    assert client.post(f"{place}/{heartbeat.pk}/delete").status_code == 403


def test_heartbeats_of_others_are_not_found(desk: Client, alpha: Tenant, beta: Tenant) -> None:
    theirs = pings.create_heartbeat(beta.app, "nightly", actor=beta.owner, now_ms=NOW_MS)
    assert desk.get(f"/apps/{beta.app.pk}/heartbeats").status_code == 404
    assert desk.post(f"/apps/{alpha.app.pk}/heartbeats/{theirs.pk}/delete").status_code == 404
    assert Heartbeat.objects.filter(pk=theirs.pk).exists()


def test_staff_change_quotas_in_the_admin_and_the_log_says_so(client: Client, alpha: Tenant) -> None:
    alpha.owner.is_staff = alpha.owner.is_superuser = True
    alpha.owner.save()
    client.force_login(alpha.owner)
    place = f"/admin/accounts/app/{alpha.app.pk}/change/"
    form = {"organisation": alpha.organisation.pk, "name": alpha.app.name, "raw_days": 90, "hour_days": 400}
    assert client.post(place, {**form, "series_max": 7, "rate_max": 0}).status_code == 200  # a rate of 0 is none
    assert client.post(place, {**form, "series_max": 7, "rate_max": 70}).status_code == 302
    alpha.app.refresh_from_db()
    assert (alpha.app.series_max, alpha.app.rate_max) == (7, 70)
    entry = AuditEntry.objects.get(action="change quotas")
    assert entry.detail == {"app": alpha.app.pk, "series_max": 7, "rate_max": 70}


def test_old_rejections_know_no_way(alpha: Tenant, desk: Client) -> None:
    RejectedLine.objects.create(app=alpha.app, time_ms=1, source="s", line=1, reason="r")
    assert desk.get(f"/apps/{alpha.app.pk}/data/rejected").status_code == 200
