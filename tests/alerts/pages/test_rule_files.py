"""The page of rule files: what would change, the import, the same file again, deletion, download, and who may."""

from collections.abc import Callable
from html import escape

import pytest
from django.contrib.auth.models import User
from django.test import Client

from alerts.models import RecordingRule, Rule
from alerts.rulebook import rules_of
from spm.accounts.models import App, AuditEntry

pytestmark = pytest.mark.django_db
TEXT = """groups:
- name: node
  rules:
  - record: job:cpu:avg
    expr: avg by (job) (cpu)
  - alert: Busy
    expr: cpu > 90
    for: 5m
"""
Login = Callable[[str], Client]


def post(client: Client, **fields: str) -> str:
    """The page that follows."""
    return client.post("/alerts/files", {"name": "a.yml", **fields}, follow=True).content.decode()


def test_what_would_change_is_shown_and_written_only_then(app: App, login: Login) -> None:
    client = login("edda")
    page = post(client, text=TEXT)
    assert "a.yml: 3 new, 0 changed, 0 gone" in page
    assert "+ alert &quot;Busy&quot; of group &quot;node&quot;" in page
    assert not Rule.objects.exists()
    assert "a.yml: 3 new, 0 changed, 0 gone." in post(client, text=TEXT, act="1")
    assert [rule.name for rule in rules_of(app)] == ["Busy"]
    assert RecordingRule.objects.get().name == "job:cpu:avg"
    assert AuditEntry.objects.get(action="rules.import").actor == User.objects.get(username="edda")
    assert "a.yml: no change" in post(client, text=TEXT)


def test_a_file_is_opened_to_be_edited_and_its_difference_is_shown(app: App, login: Login) -> None:
    client = login("edda")
    post(client, text=TEXT, act="1")
    page = client.get("/alerts/files?file=a.yml").content.decode()
    assert "expr: cpu &gt; 90" in page
    page = post(client, text=TEXT.replace("5m", "10m"))
    assert "for_ms: 300000 → 600000" in page


def test_the_rules_of_a_file_are_deleted_after_a_second_look(app: App, login: Login) -> None:
    client = login("edda")
    post(client, text=TEXT, act="1")
    page = post(client, remove="1")
    assert "a.yml: 0 new, 0 changed, 3 gone" in page
    assert rules_of(app).exists()
    post(client, remove="1", act="1")
    assert not rules_of(app).exists()


@pytest.mark.parametrize("given", [{"remove": "1"}, {"text": TEXT}], ids=["deletion", "import"])
def test_a_name_that_no_file_can_have_is_refused(app: App, login: Login, given: dict[str, str]) -> None:
    assert "not the name of a rule file" in post(login("edda"), name="a\0.yml", **given)


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("a.yml", "groups: [", "not YAML"),
        ("a.yml", "groups: [{name: g, rules: [{alert: A, expr: cpu >}]}]", "a.yml, line 1"),
        ("a/b", TEXT, "not the name of a rule file"),
        ("", TEXT, "not the name of a rule file"),
    ],
    ids=["no YAML", "a wrong expression", "a name with a slash", "no name"],
)
def test_a_mistake_is_named_and_the_text_is_kept(app: App, login: Login, name: str, text: str, wanted: str) -> None:
    page = login("edda").post("/alerts/files", {"name": name, "text": text}).content.decode()
    assert wanted in page
    assert escape(text.splitlines()[0]) in page


def test_a_file_is_downloaded_and_one_that_is_not_there_is_not(app: App, login: Login) -> None:
    post(login("edda"), text=TEXT, act="1")
    answer = login("vera").get("/alerts/files/a.yml")
    assert "alert: Busy" in answer.content.decode()
    assert "attachment" in answer.headers["Content-Disposition"]
    assert login("vera").get("/alerts/files/b.yml").status_code == 404


def test_a_viewer_sees_the_files_and_imports_none(app: App, login: Login) -> None:
    post(login("edda"), text=TEXT, act="1")
    page = login("vera").get("/alerts/files").content.decode()
    assert "a.yml" in page
    assert "See what changes" not in page
    assert "Delete" not in page
    assert login("vera").post("/alerts/files", {"name": "a.yml", "remove": "1", "act": "1"}).status_code == 403
    assert rules_of(app).exists()
