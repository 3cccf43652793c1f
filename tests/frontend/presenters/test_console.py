"""The console of the admin: each figure with its bound, those over it first."""

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from frontend.presenters.console import tiles_of
from spm.accounts import services
from spm.errors import StoreUnavailable
from spm.telemetry import MetricValue
from tests.support.people import Tenant

NOW = 1_700_000_000_000


def tile(title: str, *figures: tuple[str, dict[str, str], float]) -> tuple[str, bool]:
    """The text of a tile, and whether it is alarming."""
    tiles = tiles_of([MetricValue(*each) for each in figures], NOW)
    return next((each.text, each.is_alarming) for each in tiles if each.title == title)


@pytest.mark.parametrize(
    ("title", "name", "labels", "values", "text", "alarming"),
    [
        ("Samples not yet stored", "spm_app_samples", {"outcome": "unsettled"}, [1_200, 34], "1,234", False),
        ("Samples not yet stored", "spm_app_samples", {"outcome": "stored"}, [7], "0", False),
        ("Oldest of them", "spm_app_mark_lag_seconds", {}, [5, 61, 3], "61 s", True),
        ("Oldest of them", "spm_app_mark_lag_seconds", {}, [60], "60 s", False),
        ("Dead letters", "spm_app_dead_letters", {}, [0, 2], "2", True),
        ("Dead letters", "spm_app_dead_letters", {}, [0], "0", False),
        ("Messages given up", "spm_alerts_outbox_messages", {"state": "dead"}, [3], "3", True),
        ("Messages to send", "spm_alerts_outbox_messages", {"state": "waiting"}, [3], "3", False),
        ("Rules that fail", "spm_alerts_rules_failing", {}, [1], "1", True),
        ("Balances with damage", "spm_app_marks_damaged", {}, [1], "1", True),
        ("Last full run", "spm_run_last_success_timestamp_seconds", {"kind": "full"}, [NOW / 1000 - 600], "10 min ago",
         False),
        ("Last full run", "spm_run_last_success_timestamp_seconds", {"kind": "full"}, [NOW / 1000 - 200_000],
         "2.3 d ago", True),
        ("Newest backup", "spm_backup_last_timestamp_seconds", {}, [0], "never", True),
        ("Newest backup", "spm_backup_last_timestamp_seconds", {}, [NOW / 1000 - 7_300], "2.0 h ago", False),
    ],
)  # fmt: skip
def test_a_tile_has_its_figure_and_is_alarming_over_its_bound(
    title: str, name: str, labels: dict[str, str], values: list[float], text: str, alarming: bool
) -> None:
    figures = [(name, labels, value) for value in values]
    assert tile(title, *figures) == (text, alarming)
    assert tiles_of([MetricValue(*each) for each in figures], NOW)[0].is_alarming is alarming


def test_staff_see_the_console_above_the_models_and_each_tile_leads_somewhere(client: Client, alpha: Tenant) -> None:
    client.force_login(User.objects.create_superuser("staff@example.org"))
    page = client.get("/admin/").content.decode()
    assert "Samples not yet stored" in page
    for each in tiles_of([], NOW):
        assert f'href="{reverse(each.page)}"' in page
        assert client.get(reverse(each.page)).status_code == 200


def test_the_list_of_models_stays_when_the_store_is_away(
    client: Client, alpha: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> None:
        raise StoreUnavailable("no answer")

    monkeypatch.setattr("frontend.site_metrics.recent_figures", away)
    client.force_login(User.objects.create_superuser("staff@example.org"))
    page = client.get("/admin/").content.decode()
    assert "cannot be read now: no answer" in page
    assert reverse("admin:rollups_run_changelist") in page


def test_staff_find_what_a_customer_names(alpha: Tenant, client: Client) -> None:
    token = services.issue_token(alpha.owner, alpha.app, name="shop floor", scopes=["ingest"])[0]
    client.force_login(User.objects.create_superuser("root@example.org"))
    assert "opencommand" in client.get("/admin/").content.decode()
    for text, title in {
        alpha.owner.get_username(): alpha.owner.get_username(),
        token.prefix: "shop floor",
        str(alpha.app.pk): str(alpha.app),
        "alpha": "alpha",
    }.items():
        answer = client.get("/admin/search/", {"s": text, "extended": "1"})
        assert answer.status_code == 200
        assert title in answer.content.decode(), text


@pytest.mark.django_db
@pytest.mark.parametrize("page", ["admin:index", "admin:accounts_app_changelist", "admin:accounts_app_add"])
def test_a_page_of_the_admin_has_one_main_part(client: Client, page: str) -> None:
    client.force_login(User.objects.create_superuser("staff@example.org"))
    text = client.get(reverse(page)).content.decode()
    assert text.count('role="main"') + text.count("<main") == 1
    assert "<nav" in text
