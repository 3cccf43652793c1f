"""The pages in a browser without scripts."""

import gzip
import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.test import Client

from alerts.models import Instance, Rule
from ingest.models import RejectedLine
from spm.accounts import bootstrap, tokens
from spm.accounts.models import AuditEntry, Token
from spm.clock import SystemClock
from spm.errors import StoreUnavailable
from tests.support import notes, sample_app
from tests.support.people import Tenant


def text_of(client: Client, address: str) -> str:
    """The page's text; it must be there."""
    response = client.get(address)
    assert response.status_code == 200, address
    return response.content.decode()


def test_a_person_without_a_session_is_led_to_the_login_and_back(client: Client, alpha: Tenant) -> None:
    response = client.get(f"/apps/{alpha.app.pk}/explore")
    assert (response.status_code, response["Location"]) == (302, f"/login?next=/apps/{alpha.app.pk}/explore")
    form = {
        "username": alpha.owner.get_username(),
        "password": "correct horse",
        "next": f"/apps/{alpha.app.pk}/explore",
    }
    assert client.post("/login", form)["Location"] == f"/apps/{alpha.app.pk}/explore"


def test_the_login_redirects_to_no_foreign_site(client: Client, alpha: Tenant) -> None:
    form = {"username": alpha.owner.get_username(), "password": "correct horse", "next": "https://evil.example/"}
    assert client.post("/login", form)["Location"] == "/"


def test_a_wrong_login_does_not_say_which_part_is_wrong(client: Client, alpha: Tenant) -> None:
    page = client.post("/login", {"username": alpha.owner.get_username(), "password": "wrong"})
    assert "is wrong" in page.content.decode()


def test_the_front_page_leads_to_the_first_app(desk: Client, alpha: Tenant) -> None:
    assert desk.get("/")["Location"] == f"/apps/{alpha.app.pk}/"


def test_logging_out_takes_a_post(desk: Client) -> None:
    assert desk.get("/logout").status_code == 405
    assert desk.post("/logout")["Location"] == "/login"


def test_the_overview_of_a_new_app_points_to_sending(desk: Client, alpha: Tenant) -> None:
    page = text_of(desk, f"/apps/{alpha.app.pk}/")
    assert "Nothing has reported yet" in page
    assert f"/apps/{alpha.app.pk}/add-data" in page


def test_the_overview_shows_each_host_with_its_state_and_values(desk: Client, alpha: Tenant, settings: Any) -> None:
    sample_app.fill(settings.SPM_STORE_URL, alpha.app.pk, now_ms=SystemClock().now_ms(), span_ms=1_200_000)
    page = text_of(desk, f"/apps/{alpha.app.pk}/hosts")
    for host in sample_app.HOSTS:
        assert f"/apps/{alpha.app.pk}/hosts/{host}" in page
    assert page.count('class="badge up"') == len(sample_app.HOSTS)
    assert page.count('<path d="m') == 2 * len(sample_app.HOSTS)
    assert "–" not in page


def test_the_home_page_says_first_what_needs_a_person(desk: Client, alpha: Tenant) -> None:
    now_ms = SystemClock().now_ms()
    notes.see_source(alpha.app.pk, "db-1", now_ms - 3_600_000)
    notes.see_source(alpha.app.pk, "web-1", now_ms)
    notes.see_source(alpha.app.pk, "token-1", now_ms)
    rule = Rule.objects.create(app=alpha.app, name="CPU above 85", expr="x", created_ms=1, changed_ms=1)
    times = dict.fromkeys(("since_ms", "start_ms", "active_ms"), now_ms - 120_000)
    fields = {"rule": rule, "aspect": "value", "value": 96.04, **times}
    Instance.objects.create(fingerprint="1", labels={"host": "web-1", "disk": "a"}, phase="firing", **fields)
    Instance.objects.create(fingerprint="2", labels={"host": "web-1"}, phase="pending", **fields)
    page = text_of(desk, f"/apps/{alpha.app.pk}/")
    section = page[page.index('id="attention"') : page.index("home-charts")]
    shown = re.sub(r"\s+", " ", re.sub("<[^>]*>", "", section))
    assert "Needs attention" in shown
    assert "1 of 2 hosts up" in shown
    assert "firing CPU above 85 web-1 · disk=a 96.0 since 2 min" in shown
    assert "down db-1 last seen 60 min ago" in shown or "down db-1 last seen 1 h ago" in shown
    assert shown.count("CPU above 85") == 1


def test_a_home_page_without_problems_says_so_in_one_line(desk: Client, alpha: Tenant) -> None:
    notes.see_source(alpha.app.pk, "web-1", SystemClock().now_ms())
    page = text_of(desk, f"/apps/{alpha.app.pk}/")
    assert "Nothing needs attention" in page
    assert 'class="problems"' not in page


def test_a_home_page_says_what_was_rejected_in_the_last_hour(desk: Client, alpha: Tenant) -> None:
    now_ms = SystemClock().now_ms()
    notes.see_source(alpha.app.pk, "web-1", now_ms)
    for age_ms, reason in ((7_200_000, "too old"), (60_000, "no number"), (30_000, "no field <b>follows</b>")):
        RejectedLine.objects.create(app=alpha.app, time_ms=now_ms - age_ms, source="a", line=1, reason=reason)
    page = text_of(desk, f"/apps/{alpha.app.pk}/")
    shown = re.sub(r"\s+", " ", re.sub("<[^>]*>", "", page[page.index('id="attention"') : page.index("home-charts")]))
    assert "rejected 2 lines no field &lt;b&gt;follows&lt;/b&gt;" in shown
    assert "Needs attention" in shown
    RejectedLine.objects.filter(time_ms__gt=now_ms - 3_600_000).delete()
    assert "Nothing needs attention" in text_of(desk, f"/apps/{alpha.app.pk}/")


def test_pages_of_a_thousand_hosts_are_small(desk: Client, alpha: Tenant, settings: Any) -> None:
    now_ms = SystemClock().now_ms()
    times = np.arange(now_ms - 1_800_000, now_ms, 60_000, dtype=np.int64)
    draw = np.random.default_rng(1)
    lines = [
        sample_app.Line(metric, {"host": f"web-{number:04}"}, draw.uniform(0, 100, len(times)))
        for number in range(1_000)
        for metric in ("cpu_usage_total", "mem_used_percent")
    ]
    sample_app.write_lines(settings.SPM_STORE_URL, alpha.app.pk, "relay", lines, times)
    home = desk.get(f"/apps/{alpha.app.pk}/", HTTP_ACCEPT_ENCODING="gzip")
    answer = desk.get(f"/apps/{alpha.app.pk}/hosts", HTTP_ACCEPT_ENCODING="gzip")
    part = desk.get(f"/apps/{alpha.app.pk}/hosts-part", HTTP_ACCEPT_ENCODING="gzip")
    map_of_all = desk.get(f"/apps/{alpha.app.pk}/hosts?view=map", HTTP_ACCEPT_ENCODING="gzip")
    text = gzip.decompress(answer.content).decode()
    assert text.count('<tr id="host-') == 50
    assert "50 of 1,000 hosts" in text
    assert "of 1,000 hosts up" in gzip.decompress(home.content).decode()
    assert gzip.decompress(map_of_all.content).decode().count('id="host-') == 1_000
    sizes = {"home": len(home.content), "hosts": len(answer.content), "part": len(part.content)}
    assert sizes["home"] <= 12_000, sizes
    assert sizes["hosts"] <= 25_000, sizes
    assert sizes["part"] <= 20_000, sizes
    assert len(map_of_all.content) <= 40_000
    following = text_of(desk, f"/apps/{alpha.app.pk}/hosts?{re.search(r'after=web-[0-9]+', text)[0]}")  # type: ignore[index]
    assert 'id="host-web-0050"' in following
    assert 'id="host-web-0049"' not in following


def test_the_overview_stays_when_the_store_is_away(
    desk: Client, alpha: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise StoreUnavailable("no answer")

    monkeypatch.setattr("spm.query.promql.engine.Engine.instant", away)
    assert "cannot be read now" in text_of(desk, f"/apps/{alpha.app.pk}/")


def test_a_host_name_is_escaped_wherever_it_stands(desk: Client, alpha: Tenant) -> None:
    name = "<script>alert(1)</script>"
    unknown = desk.get(f"/apps/{alpha.app.pk}/hosts/%3Cscript%3Ealert(1)%3C/script%3E")
    notes.see_source(alpha.app.pk, name, SystemClock().now_ms())
    for page in (
        unknown.content.decode(),
        text_of(desk, f"/apps/{alpha.app.pk}/hosts/%3Cscript%3Ealert(1)%3C/script%3E"),
    ):
        assert "<script>alert" not in page
        assert html.escape(name) in page


def test_an_unknown_host_is_404_and_leads_to_the_nearest_ones(desk: Client, alpha: Tenant, settings: Any) -> None:
    sample_app.fill(settings.SPM_STORE_URL, alpha.app.pk, now_ms=SystemClock().now_ms(), span_ms=60_000)
    answer = desk.get(f"/apps/{alpha.app.pk}/hosts/WEB-3")
    page = answer.content.decode()
    assert answer.status_code == 404
    assert 'hosts/web-1"' in page
    assert 'hosts/web-2"' in page
    assert "hosts/db-1" not in page
    assert "data-chart" not in page


def test_the_page_of_a_host_says_its_state_its_labels_and_its_alerts(
    desk: Client, alpha: Tenant, settings: Any
) -> None:
    now_ms = SystemClock().now_ms()
    lines = [
        sample_app.Line(name, {"host": "web-9", "role": "web", "cpu": name}, np.array([1.0])) for name in ("a", "b")
    ]
    sample_app.write_lines(settings.SPM_STORE_URL, alpha.app.pk, "relay", lines, np.array([now_ms - 20_000]))
    page = re.sub(r"\s+", " ", text_of(desk, f"/apps/{alpha.app.pk}/hosts/web-9"))
    assert '<span class="badge up">up</span>' in page
    assert "last seen 20 s ago" in page or "last seen 21 s ago" in page or "last seen 22 s ago" in page
    assert '<span class="chip">role=web</span>' in page
    assert "cpu=" not in page[page.index("host-facts") : page.index("data-ranges")]
    assert "data-until" not in page


def test_a_host_that_is_down_is_shown_up_to_its_last_sample(desk: Client, alpha: Tenant) -> None:
    last_ms = SystemClock().now_ms() - 86_400_000
    notes.see_source(alpha.app.pk, "web-1", last_ms)
    page = text_of(desk, f"/apps/{alpha.app.pk}/hosts/web-1")
    assert f'data-until="{last_ms}"' in page
    assert '<span class="badge gone">down</span>' in page


@pytest.mark.parametrize("host", ["a//b/", "a\nb", "100%", "<b>'\"", "a;b?c#d&e=f", "\0"])
def test_a_host_with_an_odd_name_is_listed_and_has_its_page(
    desk: Client, alpha: Tenant, settings: Any, host: str
) -> None:
    line = sample_app.Line("cpu_usage_total", {"host": host}, np.array([float("nan")]))
    now_ms = SystemClock().now_ms()
    sample_app.write_lines(settings.SPM_STORE_URL, alpha.app.pk, "relay", [line], np.array([now_ms - 20_000]))
    at = f"/apps/{alpha.app.pk}"
    for view in ("", "?view=map", "?sort=cpu", "?q=cpu<0"):
        page = text_of(desk, f"{at}/hosts{view}")
    assert "No host matches" in page
    [address] = re.findall(rf'href="({at}/hosts/[^"]+)"', text_of(desk, f"{at}/hosts"))
    assert '<span class="badge up">up</span>' in text_of(desk, html.unescape(address))


def test_an_expression_of_the_address_is_escaped(desk: Client, alpha: Tenant) -> None:
    page = text_of(desk, f'/apps/{alpha.app.pk}/explore?expr="><script>alert(1)</script>')
    assert "<script>alert" not in page


def test_pages_run_no_inline_script_or_style(desk: Client, alpha: Tenant) -> None:
    notes.see_source(alpha.app.pk, "x", SystemClock().now_ms())
    for rest in ("", "explore", "add-data", "hosts/x"):
        page = text_of(desk, f"/apps/{alpha.app.pk}/{rest}")
        assert " style=" not in page
        assert " onclick=" not in page
        assert all("src=" in tag for tag in page.split("<script")[1:])


def test_a_new_token_is_in_the_commands_once(desk: Client, alpha: Tenant) -> None:
    address = f"/apps/{alpha.app.pk}/add-data"
    response = desk.post(address, {"name": "mine", "use": "ingest"})
    page = html.unescape(response.content.decode())
    token = Token.objects.get(name="mine")
    secret = next(text for text in page.replace("'", " ").split() if text.startswith(f"{token.prefix}_"))
    assert tokens.authenticate(secret, "ingest")
    assert tokens.authenticate(secret, "read") is None
    assert response["Cache-Control"] == "no-store"
    assert secret not in text_of(desk, address)
    assert AuditEntry.objects.get().action == "token issued"


@pytest.mark.parametrize("form", [{}, {"name": "x"}, {"name": "", "use": "read"}, {"name": "x", "use": "admin"}])
def test_an_invalid_token_form_creates_none(desk: Client, alpha: Tenant, form: dict[str, str]) -> None:
    before = Token.objects.count()
    assert desk.post(f"/apps/{alpha.app.pk}/add-data", form).status_code == 400
    assert Token.objects.count() == before


def test_a_viewer_creates_and_revokes_no_token(client: Client, alpha: Tenant) -> None:
    client.force_login(alpha.viewer)
    address, token = f"/apps/{alpha.app.pk}/add-data", alpha.app.tokens.get()
    assert "Create a token</button>" not in text_of(client, address)
    assert client.post(address, {"name": "x", "use": "read"}).status_code == 403
    assert client.post(f"/apps/{alpha.app.pk}/tokens/{token.pk}/revoke").status_code == 403


def test_a_revoked_token_is_gone_from_the_page_and_works_no_more(desk: Client, alpha: Tenant) -> None:
    token = alpha.app.tokens.get()
    page = desk.post(f"/apps/{alpha.app.pk}/tokens/{token.pk}/revoke", follow=True).content.decode()
    assert token.prefix not in page
    assert tokens.authenticate(alpha.token, "read") is None
    again = desk.post(f"/apps/{alpha.app.pk}/tokens/{token.pk}/revoke", follow=True)
    assert "revoked before" in again.content.decode()


def test_a_token_of_another_app_cannot_be_revoked(desk: Client, alpha: Tenant, beta: Tenant) -> None:
    foreign = beta.app.tokens.get()
    assert desk.post(f"/apps/{alpha.app.pk}/tokens/{foreign.pk}/revoke").status_code == 404


def test_arrivals_appear_as_they_come(desk: Client, alpha: Tenant) -> None:
    assert "No data has arrived" in text_of(desk, f"/apps/{alpha.app.pk}/add-data/arrivals")
    alpha.app.sources.create(name="laptop", first_seen="2026-01-01T00:00Z", last_seen="2026-01-01T00:00Z")
    assert "laptop" in text_of(desk, f"/apps/{alpha.app.pk}/add-data/arrivals")


def test_changing_the_password_removes_the_first_login(client: Client, db: None, tmp_path: Path) -> None:
    login = bootstrap.create_demo(tmp_path, "http://testserver")
    client.login(username=login["login"], password=login["password"])
    new = {"new_password1": "four green lamps 9", "new_password2": "four green lamps 9"}
    assert client.post("/account/password", {"old_password": login["password"], **new}).status_code == 302
    assert not (tmp_path / "first-login.json").exists()
    assert client.get("/", follow=True).status_code == 200  # still logged in
    assert not Client().login(username=login["login"], password=login["password"])


def test_a_password_that_is_refused_leaves_the_first_login(client: Client, db: None, tmp_path: Path) -> None:
    login = bootstrap.create_demo(tmp_path, "http://testserver")
    client.login(username=login["login"], password=login["password"])
    client.post("/account/password", {"old_password": "x", "new_password1": "a", "new_password2": "a"})
    assert json.loads((tmp_path / "first-login.json").read_text())["password"] == login["password"]


def test_a_missing_page_says_so_without_a_session_too(client: Client, db: None) -> None:
    response = client.get("/no/such/page")
    assert response.status_code == 404
    assert "Page not found" in response.content.decode()


def test_a_crash_shows_the_page_for_it(desk: Client, alpha: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("frontend.pages.overview.fleet_of", crash)
    desk.raise_request_exception = False
    response = desk.get(f"/apps/{alpha.app.pk}/")
    assert response.status_code == 500
    assert "The server made an error" in response.content.decode()
    assert "boom" not in response.content.decode()


def test_a_person_without_any_organisation_gets_404(client: Client, django_user_model: Any, db: None) -> None:
    client.force_login(django_user_model.objects.create_user("nobody"))
    assert client.get("/").status_code == 404


@pytest.mark.parametrize(
    ("metrics", "text"),
    [
        ([], "(cpu_usage_total["),
        (["room_temperature"], ">room_temperature</textarea>"),
        (["a_total", "cpu_usage_total"], "(cpu_usage_total["),
    ],
    ids=["no data", "no hosts", "hosts"],
)
def test_explore_begins_with_what_the_app_has(
    desk: Client, alpha: Tenant, settings: Any, metrics: list[str], text: str
) -> None:
    times = np.array([SystemClock().now_ms() - 1_000], dtype=np.int64)
    lines = [sample_app.Line(name, {"host": "a"}, np.array([21.5])) for name in metrics]
    if lines:
        sample_app.write_lines(settings.SPM_STORE_URL, alpha.app.pk, "kitchen", lines, times)
    assert text in text_of(desk, f"/apps/{alpha.app.pk}/explore")
