"""Every page in light and dark, wide and narrow: no script fails, nothing is wider than the screen."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.e2e.conftest import drawn, log_in, picture
from tests.frontend.conftest import House

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PAGES = {
    "overview": ("/apps/{app}/", 1),
    "host": ("/apps/{app}/hosts/db-1", 10),
    "chart": ("/apps/{app}/chart?range=1h", 1),
    "send": ("/apps/{app}/send", 0),
    "password": ("/account/password", 0),
    "missing": ("/apps/999999/", 0),
}
LOOKS: dict[str, dict[str, Any]] = {"light": {}, "dark": {"dark": True}, "narrow": {"width": 390, "height": 844}}


@pytest.mark.parametrize("look", LOOKS)
def test_pages_fit_the_screen_and_run_without_errors(look: str, open_page: Callable[..., Page], fleet: House) -> None:
    page = open_page(**LOOKS[look])
    page.goto("/login")
    picture(page, f"login-{look}")
    log_in(page, fleet)
    for name, (address, charts) in PAGES.items():
        page.goto(address.format(app=fleet.app.pk))
        drawn(page, charts)
        picture(page, f"{name}-{look}")
        too_wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
        assert not too_wide, f"{name} is wider than the screen"
