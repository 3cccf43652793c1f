"""What the command palette finds: only what the caller may see."""

from typing import Any

import pytest
from django.test import Client

from alerts.models import Rule
from spm.clock import SystemClock
from tests.support import sample_app
from tests.support.people import Tenant, make_tenant


def groups(client: Client, app: int, text: str) -> dict[str, list[str]]:
    """The texts by kind."""
    answer = client.get("/api/v1/search", {"app": str(app), "q": text})
    assert answer.status_code == 200, answer.content
    return {group["kind"]: [item["text"] for item in group["items"]] for group in answer.json()["groups"]}


@pytest.mark.parametrize(
    ("text", "kind", "texts"),
    [
        ("eb-", "Hosts", ["web-1", "web-2"]),
        ("USED", "Metrics", ["disk_used_percent", "mem_used", "mem_used_percent"]),
        ("fill", "Rules", ["Disk fills"]),
        ("explo", "Pages", ["Explore"]),
        ("help", "Pages", ["Help"]),
        ("snmp dev", "Help", ["SNMP devices, by Telegraf"]),
        ("alpha st", "Apps", ["alpha staging"]),
    ],
)
def test_a_part_of_a_name_is_enough(
    desk: Client, alpha: Tenant, settings: Any, text: str, kind: str, texts: list[str]
) -> None:
    now = SystemClock().now_ms()
    sample_app.fill(settings.SPM_STORE_URL, alpha.app.pk, now_ms=now)
    Rule.objects.create(app=alpha.app, name="Disk fills", expr="x", created_ms=now, changed_ms=now)
    alpha.organisation.apps.create(name="alpha staging")
    assert groups(desk, alpha.app.pk, text)[kind] == texts


def test_nothing_of_other_organisations_is_found(desk: Client, alpha: Tenant) -> None:
    other = make_tenant("beta")
    assert groups(desk, alpha.app.pk, "beta") == {}
    assert desk.get("/api/v1/search", {"app": other.app.pk}).status_code == 404


def test_a_viewer_finds_no_page_of_admins(client: Client, alpha: Tenant) -> None:
    client.force_login(alpha.viewer)
    assert "Retention" not in groups(client, alpha.app.pk, "")["Pages"]
    client.force_login(alpha.owner)
    assert "Retention" in groups(client, alpha.app.pk, "")["Pages"]


def test_a_section_of_help_is_found_where_it_stands(desk: Client, alpha: Tenant) -> None:
    answer = desk.get("/api/v1/search", {"app": str(alpha.app.pk), "q": "snmp devices"})
    [item] = next(group["items"] for group in answer.json()["groups"] if group["kind"] == "Help")
    assert (item["hint"], item["href"]) == ("Send data", "/help/docs/sending#snmp-devices-by-telegraf")
    assert 'id="snmp-devices-by-telegraf"' in desk.get(item["href"]).content.decode()
