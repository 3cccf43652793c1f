"""An account, requests from anywhere to log in to it, and a clock that tests move."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from django.contrib.auth.models import User
from django.test import RequestFactory

from spm.accounts.logins import attempts
from spm.accounts.logins.origins import DEVICE_COOKIE
from spm.clock import FakeClock
from spm.errors import LoginRefused

RIGHT, WRONG = "correct horse", "wrong horse"


@dataclass
class Browser:
    """Logs in from an address, and keeps its cookie."""

    address: str = "192.0.2.1"
    device: str = ""
    results: list[str] = field(default_factory=list)

    def log_in(self, login: str = "ada", password: str = RIGHT) -> str:
        """Try; returns ``right``, ``wrong`` or ``refused``."""
        request = RequestFactory().post("/login", REMOTE_ADDR=self.address)
        request.COOKIES.update({DEVICE_COOKIE: self.device} if self.device else {})
        try:
            login_of = attempts.log_in(request, login, password)
        except LoginRefused:
            return "refused"
        if login_of is None:
            return "wrong"
        self.device = login_of.device
        return "right"

    def guess(self, times: int, login: str = "ada") -> list[str]:
        """Try wrong passwords; returns what became of each."""
        return [self.log_in(login, WRONG) for _ in range(times)]


def attackers(count: int) -> list[Browser]:
    """Browsers in networks of their own."""
    return [Browser(f"198.51.{number // 250}.{number % 250}") for number in range(count)]


@pytest.fixture
def ada(db: None) -> User:
    """The account's owner."""
    return User.objects.create_user("ada", email="ada@example.org", password=RIGHT)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeClock]:
    """The clock of all logins."""
    clock = FakeClock()
    monkeypatch.setattr(attempts, "_clock", clock)
    attempts._journal.clear()
    yield clock
    attempts._journal.clear()
