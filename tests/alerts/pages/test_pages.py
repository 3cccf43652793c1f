"""The alerting pages: who sees what, the form with its live check."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from alerts.expressions import SeriesValue, query_engine
from alerts.models import Rule
from alerts.models.telling import Notification
from alerts.telling.limits import GROUP_WAIT_MS
from spm.accounts.models import App
from spm.errors import BadQuery, QueryTooLarge
from spm.query.fake import FakeStorage
from tests.alerts.conftest import START_MS, AlertingWorld, Machine

pytestmark = pytest.mark.django_db
FORM = {
    "name": "Disk is full",
    "expr": "disk_used_percent",
    "comparator": ">",
    "threshold": "95",
    "recovery": "90",
    "for_ms": "5m",
    "keep_firing_for_ms": "",
    "severity": "critical",
    "receivers": "a@example.org, b@example.org",
    "enabled": "on",
}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Answers the pages in place of the engine."""
    machine = Machine({"web-1": 97.0, "web-2": 12.5})
    monkeypatch.setattr("alerts.pages.editor.views.query_engine", machine.query)
    return machine


@pytest.fixture
def fired(make_rule: Callable[..., Rule], world: AlertingWorld) -> Rule:
    rule = make_rule()
    world.evaluate_values(95)
    world.clock.advance(GROUP_WAIT_MS)
    world.tell()
    return rule


def post(client: Client, path: str, **changes: str) -> Any:
    return client.post(path, {**FORM, **changes})


def text(client: Client, path: str, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status
    return answer.content.decode()


def test_the_list_shows_rules_and_what_fires(fired: Rule, login: Callable[[str], Client]) -> None:
    page = text(login("vera"), "/alerts/")
    assert "CPU is busy" in page
    assert '<span class="badge firing">' in page
    assert "&gt; 90" in page


def test_the_list_is_filtered_and_shows_a_hundred_at_a_time(
    fired: Rule, make_rule: Callable[..., Rule], login: Callable[[str], Client]
) -> None:
    for number in range(120):
        make_rule(name=f"Disk {number:03d}", expr="disk_used")
    client = login("vera")
    first = text(client, "/alerts/")
    assert first.count('class="row"') == 100
    assert first.index("CPU is busy") < first.index("Disk 000")  # it fires
    assert "Disk 118" in text(client, "/alerts/?start=100")
    one = text(client, "/alerts/?q=disk+007")
    assert "1 of 121 rules" in one
    assert one.count('class="row"') == 1
    assert text(client, "/alerts/?state=firing").count('class="row"') == 1
    assert "No such rule" in text(client, f"/alerts/?q=nothing%00+of+it&start={'9' * 5_000}")


def test_a_rule_page_shows_series_and_history(fired: Rule, login: Callable[[str], Client]) -> None:
    page = text(login("vera"), f"/alerts/rules/{fired.pk}")
    assert page.count("cpu host=a") == 3  # its state, its alert, its history
    assert "Edit" not in page


def test_a_rule_that_cannot_be_judged_says_why(
    fired: Rule, world: AlertingWorld, login: Callable[[str], Client]
) -> None:
    world.machine.error = BadQuery("no such <function>")
    world.evaluate_values(1)
    assert "no such &lt;function&gt;" in text(login("vera"), f"/alerts/rules/{fired.pk}")


def test_an_editor_writes_a_rule(app: App, machine: Machine, login: Callable[[str], Client]) -> None:
    answer = post(login("edda"), f"/alerts/new?app={app.pk}")
    rule = Rule.objects.get()
    assert answer["Location"] == f"/alerts/rules/{rule.pk}"
    assert (rule.app, rule.threshold, rule.recovery, rule.for_ms) == (app, 95.0, 90.0, 300_000)
    assert rule.receivers == ["a@example.org", "b@example.org"]
    assert rule.created_by is not None


def test_an_editor_changes_and_deletes_a_rule(fired: Rule, machine: Machine, login: Callable[[str], Client]) -> None:
    client = login("edda")
    assert 'value="90"' in text(client, f"/alerts/rules/{fired.pk}/edit")
    post(client, f"/alerts/rules/{fired.pk}/edit", name="Renamed")
    fired.refresh_from_db()
    assert fired.name == "Renamed"
    assert client.post(f"/alerts/rules/{fired.pk}/delete").status_code == 302
    assert client.get(f"/alerts/rules/{fired.pk}").status_code == 404


def test_what_the_form_does_not_show_stays_as_it_is(
    make_rule: Callable[..., Rule], machine: Machine, login: Callable[[str], Client]
) -> None:
    hidden = {
        "kind": "heartbeat",
        "window_ms": 420_000,
        "horizon_ms": 7_200_000,
        "forget_ms": 86_400_000,
        "weeks": 3,
        "spread_min": 1.5,
        "by": ["host"],
        "labels": {"team": "db"},
        "annotations": {"summary": "silent"},
    }
    rule = make_rule(**hidden)
    assert post(login("edda"), f"/alerts/rules/{rule.pk}/edit", name="Renamed").status_code == 302
    rule.refresh_from_db()
    assert rule.name == "Renamed"
    assert {name: getattr(rule, name) for name in hidden} == hidden


@pytest.mark.parametrize(
    ("changes", "text_shown"),
    [
        ({"name": ""}, "required"),
        ({"expr": ""}, "required"),
        ({"threshold": ""}, "needs a threshold"),
        ({"threshold": "nan"}, "Enter a number"),
        ({"recovery": "99"}, "good side"),
        ({"comparator": "", "recovery": "1"}, "good side"),
        ({"comparator": "~"}, "valid choice"),
        ({"for_ms": "soon"}, "not a duration"),
        ({"for_ms": "8d"}, "At most 7d"),
        ({"receivers": ""}, "required"),
        ({"receivers": "nobody"}, "valid mail address"),
        ({"receivers": " ".join(f"p{n}@example.org" for n in range(21))}, "At most 20"),
        ({"expr": "x" * 4_097}, "at most 4096"),
    ],
)
def test_the_form_says_what_is_wrong(
    app: App, machine: Machine, login: Callable[[str], Client], changes: dict[str, str], text_shown: str
) -> None:
    answer = post(login("edda"), f"/alerts/new?app={app.pk}", **changes)
    assert answer.status_code == 200
    assert text_shown in answer.content.decode()
    assert not Rule.objects.exists()


def test_an_expression_that_does_not_parse_is_not_saved(
    app: App, machine: Machine, login: Callable[[str], Client]
) -> None:
    machine.error = BadQuery("unexpected end of input")
    answer = post(login("edda"), f"/alerts/new?app={app.pk}", expr="sum(")
    assert "unexpected end of input" in answer.content.decode()
    assert not Rule.objects.exists()


def test_the_live_check_shows_which_series_would_fire(
    app: App, machine: Machine, login: Callable[[str], Client]
) -> None:
    page = text(login("vera"), f"/alerts/check?app={app.pk}&expr=cpu&comparator=>&threshold=90")
    assert "2 series, <strong>1</strong> would fire" in page
    assert page.index("host=web-1") < page.index("host=web-2")


@pytest.mark.parametrize(
    ("error", "text_shown"),
    [
        (BadQuery("not <known>", 4), 'sum(<strong class="wrong">'),
        (QueryTooLarge("over 5000 series"), "over 5000 series"),
    ],
)
def test_the_live_check_explains_an_error(
    app: App, machine: Machine, login: Callable[[str], Client], error: Any, text_shown: str
) -> None:
    machine.error = error
    page = text(login("vera"), f"/alerts/check?app={app.pk}&expr=sum(foo")
    assert text_shown in page
    assert "<known>" not in page


def test_a_form_in_which_nothing_is_written_yet_shows_no_mistake(
    app: App, machine: Machine, login: Callable[[str], Client]
) -> None:
    client = login("edda")
    check = text(client, f"/alerts/check?app={app.pk}&expr=")
    assert "Write an expression." in check
    trial = client.post(f"/alerts/try?app={app.pk}", {"kind": "threshold", "expr": ""}).content.decode()
    assert "notice error" not in check
    assert "This field is required" not in trial
    assert machine.queries == []


def test_a_rule_page_draws_what_the_rule_compares(
    make_rule: Callable[..., Rule], login: Callable[[str], Client]
) -> None:
    client = login("vera")
    rate = make_rule(expr="errors_total", kind="rate", window_ms=300_000)
    assert 'data-expr="rate(errors_total[300000ms])"' in text(client, f"/alerts/rules/{rate.pk}")
    composite = make_rule(name="Both", expr=f"#{rate.pk}", kind="composite")
    assert "data-chart" not in text(client, f"/alerts/rules/{composite.pk}")


def test_a_rule_without_receivers_says_who_hears_of_it(
    make_rule: Callable[..., Rule], login: Callable[[str], Client]
) -> None:
    page = text(login("vera"), f"/alerts/rules/{make_rule(receivers=[]).pk}")
    assert "It names no receiver" in page
    assert "Messages go to ." not in page


PATHS = [
    "/alerts/?app={app}",
    "/alerts/new?app={app}",
    "/alerts/check?app={app}&expr=cpu",
    "/alerts/notifications?app={app}",
    "/alerts/notifications/{note}",
    "/alerts/silences?app={app}",
    "/alerts/silences/preview?app={app}",
    "/alerts/rules/{rule}",
    "/alerts/rules/{rule}/edit",
]


@pytest.mark.parametrize("path_format", PATHS)
def test_nothing_of_a_foreign_app_exists(
    fired: Rule, foreign_app: App, machine: Machine, login: Callable[[str], Client], path_format: str
) -> None:
    path = path_format.format(app=fired.app_id, rule=fired.pk, note=Notification.objects.get().pk)
    assert login("mallory").get(path).status_code == 404
    assert machine.queries == []


@pytest.mark.parametrize(
    "action", ["/alerts/rules/{rule}/edit", "/alerts/rules/{rule}/delete", "/alerts/notifications/{note}/retry"]
)
@pytest.mark.parametrize(("name", "status"), [("mallory", 404), ("vera", 403)])
def test_only_editors_of_the_app_change_things(
    fired: Rule, foreign_app: App, login: Callable[[str], Client], action: str, name: str, status: int
) -> None:
    before = Rule.objects.values().get()
    path = action.format(rule=fired.pk, note=Notification.objects.get().pk)
    assert post(login(name), path).status_code == status
    assert Rule.objects.values().get() == before


@pytest.mark.parametrize(
    "path", ["/alerts/", "/alerts/new", "/alerts/notifications", "/alerts/silences", "/alerts/check", "/alerts/rules/1"]
)
def test_people_who_are_not_logged_in_are_sent_to_the_login(app: App, path: str) -> None:
    answer = Client().get(path)
    assert answer.status_code == 302
    assert answer["Location"].startswith("/login")


def test_rules_of_one_app_do_not_show_in_another(fired: Rule, foreign_app: App, login: Callable[[str], Client]) -> None:
    assert "CPU is busy" not in text(login("mallory"), "/alerts/")
    assert "CPU is busy" not in text(login("mallory"), "/alerts/notifications")


def test_names_and_labels_cannot_write_markup(
    make_rule: Callable[..., Rule], world: AlertingWorld, login: Callable[[str], Client]
) -> None:
    rule = make_rule(name="<script>1</script>", expr="<b>")
    world.evaluate_values(95, host="<img src=x>")
    world.clock.advance(GROUP_WAIT_MS)
    world.tell()
    note = Notification.objects.get().pk
    for path in ("/alerts/", f"/alerts/rules/{rule.pk}", "/alerts/notifications", f"/alerts/notifications/{note}"):
        page = text(login("vera"), path)
        assert "<script>1" not in page
        assert "<img src=x>" not in page


def test_the_engine_answers_with_the_apps_own_series(monkeypatch: pytest.MonkeyPatch) -> None:
    storages = {1: FakeStorage().add("cpu", {"host": "a"}, [START_MS], [95.0]), 2: FakeStorage()}
    monkeypatch.setattr("alerts.expressions.query.storage_for", storages.__getitem__)
    values: Sequence[SeriesValue] = query_engine(1, "cpu > 90", START_MS + 1_000)
    assert [(each.labels["host"], each.value) for each in values] == [("a", 95.0)]
    assert list(query_engine(2, "cpu > 90", START_MS)) == []
    assert [each.value for each in query_engine(2, "1 + 1", START_MS)] == [2.0]


@pytest.mark.parametrize("expr", ["sum(", "cpu[5m]", '"text"', "unknown_function(cpu)"])
def test_the_engine_refuses_what_gives_no_numbers(monkeypatch: pytest.MonkeyPatch, expr: str) -> None:
    monkeypatch.setattr("alerts.expressions.query.storage_for", lambda app: FakeStorage())
    with pytest.raises(BadQuery):
        query_engine(1, expr, START_MS)


def test_an_answer_of_too_many_series_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = FakeStorage()
    for number in range(4):
        storage.add("cpu", {"host": str(number)}, [START_MS], [1.0])
    monkeypatch.setattr("alerts.expressions.query.storage_for", lambda app: storage)
    monkeypatch.setattr("spm.limits.RULE_SERIES_MAX", 3)
    with pytest.raises(Exception, match="too many series"):
        query_engine(1, "cpu", START_MS)


def test_a_number_of_an_app_that_is_too_long_to_be_read_is_not_found(app: App, people: dict[str, User]) -> None:
    client = Client()
    client.force_login(people["edda"])
    assert [client.get(f"/alerts/{rest}?app={'9' * 5_000}").status_code for rest in ("", "new", "check")] == [404] * 3
