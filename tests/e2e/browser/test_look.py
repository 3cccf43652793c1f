"""Every page in light and dark, wide and narrow: no script fails, nothing is wider than the screen."""

import pytest
from playwright.sync_api import Page

from rollups.models import RunKind
from rollups.retraction import Draft
from rollups.services import retractions as services_retractions
from rollups.services import runs as services_runs
from rollups.services.retractions import Actor
from spm.accounts.services import issue_token
from tests.e2e.browser.conftest import drawn, fits_each_screen, log_in, picture
from tests.support.people import Tenant

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PAGES = {
    "overview": ("/apps/{app}/", 1),
    "hosts": ("/apps/{app}/hosts", 0),
    "hosts-map": ("/apps/{app}/hosts?view=map", 0),
    "host": ("/apps/{app}/hosts/db-1", 10),
    "chart": ("/apps/{app}/explore?range=1h", 1),
    "send": ("/apps/{app}/add-data", 0),
    "agents": ("/apps/{app}/data/sources", 0),
    "heartbeats": ("/apps/{app}/heartbeats", 0),
    "rejected": ("/apps/{app}/data/rejected", 0),
    "dead-letters": ("/apps/{app}/data/dead-letters", 0),
    "password": ("/account/password", 0),
    "alerts": ("/alerts/", 0),
    "alerts-new": ("/alerts/new", 0),
    "notifications": ("/alerts/notifications", 0),
    "silences": ("/alerts/silences", 0),
    "windows": ("/alerts/windows", 0),
    "policies": ("/alerts/policies", 0),
    "missing": ("/apps/999999/", 0),
}


def test_pages_fit_each_screen_and_run_without_errors(page: Page, fleet: Tenant) -> None:
    page.goto("/login")
    fits_each_screen(page, "login")
    log_in(page, fleet)
    for name, (address, charts) in PAGES.items():
        page.goto(address.format(app=fleet.app.pk))
        drawn(page, charts)
        fits_each_screen(page, name)


@pytest.mark.parametrize(
    ("ticks", "unit", "step", "texts"),
    [
        ([0, 0.025, 0.05], "", 0.025, ["0", "0.025", "0.05"]),
        ([0, 20, 40], "", 20, ["0", "20", "40"]),
        ([0, 0.0005], "", 0.0005, ["0", "0.0005"]),
        ([0, 12.5], "percent", 12.5, ["0\u202f%", "12.5\u202f%"]),
        ([-20_000, 0], "", 20_000, ["-20k", "0"]),
        ([0, 2**20], "bytes", 2**20, ["0\u202fB", "1\u202fMiB"]),
    ],
)
def test_values_beside_a_chart_tell_neighbours_apart(
    ticks: list[float], unit: str, step: float, texts: list[str], page: Page
) -> None:
    page.goto("/login")
    script = (
        "([ticks, unit, step]) => import('/static/js/charts/grammar.js').then((m) => m.valueTicks(ticks, unit, step))"
    )
    assert page.evaluate(script, [ticks, unit, step]) == texts


@pytest.mark.parametrize(
    ("spans", "wanted"),
    [
        ([(10, 20), (12, 30), (5, 11)], [(5, 30)]),
        ([(1, 2), (2, 3), (7, 9)], [(1, 3), (7, 9)]),
        ([], []),
    ],
)
def test_alerts_at_the_same_time_are_one_band(
    spans: list[tuple[int, int]], wanted: list[tuple[int, int]], page: Page
) -> None:
    page.goto("/login")
    script = (
        "(all) => import('/static/js/charts/grammar.js')"
        ".then((m) => m.united(all.map(([start, end]) => ({ start, end }))))"
    )
    assert page.evaluate(script, spans) == [{"start": start, "end": end} for start, end in wanted]


ADMIN = {
    "admin": "/admin/",
    "admin-organisation": "/admin/accounts/organisation/{organisation}/change/",
    "admin-tokens": "/admin/accounts/token/",
    "admin-token-new": "/admin/accounts/token/add/",
    "admin-sources": "/admin/accounts/source/",
    "admin-audit": "/admin/accounts/auditentry/",
    "admin-users": "/admin/auth/user/",
    "admin-apps": "/admin/accounts/app/",
    "admin-runs": "/admin/rollups/run/",
    "admin-corrections": "/admin/rollups/correction/",
    "admin-retractions": "/admin/rollups/retractionrecord/",
}


def test_the_admin_runs_without_errors(page: Page, fleet: Tenant) -> None:
    fleet.owner.is_staff = fleet.owner.is_superuser = True
    fleet.owner.save()
    issue_token(fleet.owner, fleet.app, name="Kitchen", scopes=["ingest"])
    site = services_runs.site()
    services_runs.roll(site, apps=[fleet.app.pk], kind=RunKind.MINOR, executor="local")
    services_retractions.retract(site, fleet.app, Draft(source="db-1", reason="test"), Actor("ada", "here"))
    log_in(page, fleet)
    for name, address in ADMIN.items():
        page.goto(address.format(organisation=fleet.organisation.pk))
        page.wait_for_load_state("networkidle")
        picture(page, name)
