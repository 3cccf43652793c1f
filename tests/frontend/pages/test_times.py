"""Times of pages: each is marked, so that the script writes it in the zone that the charts have."""

import re

import pytest
from django.conf import settings
from django.test import Client
from django.urls import get_resolver

from frontend.templatetags.site_text import local_clock, local_minute, local_time
from spm.accounts.models import AuditEntry
from spm.clock import SystemClock, moment
from tests.frontend import balance_examples
from tests.frontend.site_walk import Caller, address_of, fill_world, routes
from tests.support import notes
from tests.support.people import Tenant

MS = 1_763_730_300_000  # 2025-11-21 13:05:00 UTC
MARKED = re.compile(
    r"<(time|title) [^>]*data-ms=.*?</\1>|<span data-zone-name>UTC</span>|<(script|pre|code|option)\b.*?</\2>", re.S
)
TIME = re.compile(r">[^<]*(\d{4}-\d\d-\d\d \d\d:\d\d|\bUTC\b)[^<]*<")
OF_A_WINDOW = ">UTC, for 1m<"  # the zone that its schedule is in
OTHERS = ("/admin/", "/api/", "/prometheus/", "/static/")  # what staff and programs read


def unmarked(page: str) -> list[str]:
    """The texts of a page with a time, or with a zone, that no script rewrites."""
    return [match[0] for match in TIME.finditer(MARKED.sub("", page)) if match[0] != OF_A_WINDOW]


@pytest.fixture
def world(alpha: Tenant, own_store: None) -> dict[str, str]:
    """What addresses name, in an app with something of everything."""
    now_ms = SystemClock().now_ms()
    Client().get("/login")  # the URLs are loaded
    balance_examples.fill(settings.SPM_STORE_URL, alpha.app.pk, now_ms)
    notes.see_arrival(alpha.app.pk, "influx", "web-1", now_ms)
    return fill_world(alpha)


def test_no_page_writes_a_time_that_stays_in_utc(alpha: Tenant, world: dict[str, str]) -> None:
    left, read, caller = {}, 0, Caller(alpha.owner)
    for route in routes(get_resolver().url_patterns):
        address = address_of(route, world)
        if address.startswith(OTHERS) or "stream" in address:
            continue
        answer, _ = caller.ask("GET", f"{address}?app={alpha.app.pk}", {}, is_json=False)
        if answer.status_code == 200 and answer["Content-Type"].startswith("text/html"):
            read += 1
            if texts := unmarked(answer.content.decode()):
                left[address] = texts
    assert left == {}
    assert read > 40


def test_the_audit_log_filters_by_days_of_the_readers_zone(desk: Client, alpha: Tenant) -> None:
    entry = AuditEntry.objects.create(organisation=alpha.organisation, action="did", subject="thing")
    AuditEntry.objects.filter(pk=entry.pk).update(at=moment(MS - MS % 86_400_000 + 84_600_000))  # 23:30 UTC
    place = f"/org/{alpha.organisation.pk}/settings/audit?what=thing"

    def has(days: str) -> bool:
        return "did <strong>thing</strong>" in desk.get(f"{place}&{days}").content.decode()

    assert has("since=2025-11-21&until=2025-11-21")
    assert has("since=2025-11-22&until=2025-11-22&tz=Europe/Berlin")
    assert not has("since=2025-11-21&until=2025-11-21&tz=Europe/Berlin")
    assert has("since=2025-11-21&until=2025-11-21&tz=Mars/Base")  # no zone: UTC
    assert has("until=9999-12-31")  # no day after it: no bound


@pytest.mark.parametrize(
    ("mark", "text"),
    [(local_time, "2025-11-21 13:05:00 UTC"), (local_minute, "2025-11-21 13:05 UTC"), (local_clock, "13:05:00 UTC")],
)
def test_a_time_is_utc_where_no_script_runs(mark: object, text: str) -> None:
    for at in (MS, moment(MS)):
        assert f">{text}</time>" in mark(at)  # type: ignore[operator]
    assert (mark(None), mark(0)) == ("", "")  # type: ignore[operator]
