"""People of tests: the tenant they belong to, and one who is logged in to a real web server without a browser."""

import re
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from http.cookiejar import CookieJar

from django.contrib.auth.models import User

from spm.accounts import tokens
from spm.accounts.models import App, Membership, Organisation, Role


class Person:
    """Reads pages of ``root`` and submits their forms."""

    def __init__(self, root: str, login: str, password: str) -> None:
        self._root = root
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        self.submit("/login", username=login, password=password)

    def read(self, path: str) -> str:
        """Return a page."""
        return self._opener.open(self._root + path, timeout=30).read().decode()  # type: ignore[no-any-return]

    def submit(self, path: str, address: str = "", /, **fields: str | Sequence[str]) -> str:
        """The page to which a form leads that stands on a page and is sent there, or to the address."""
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', self.read(path))
        assert token, f"no form at {path}"
        form = urllib.parse.urlencode({**fields, "csrfmiddlewaretoken": token[1]}, doseq=True).encode()
        request = urllib.request.Request(self._root + (address or path), form, {"Referer": self._root + path})
        return self._opener.open(request, timeout=30).read().decode()  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Tenant:
    """One organisation with one app and one person of each role that tests need."""

    organisation: Organisation
    app: App
    owner: User
    viewer: User
    token: str  # scope read


def make_tenant(name: str) -> Tenant:
    """Create an organisation with people and an app."""
    organisation = Organisation.objects.create(name=name)
    people = {}
    for role in (Role.OWNER, Role.VIEWER):
        people[role] = User.objects.create_user(f"{role}@{name}.example", password="correct horse")
        Membership.objects.create(organisation=organisation, user=people[role], role=role)
    app = App.objects.create(organisation=organisation, name=f"{name} production")
    _, secret = tokens.issue(app, name="reader", scopes=["read"])
    return Tenant(organisation, app, people[Role.OWNER], people[Role.VIEWER], secret)
