"""Somebody who is logged in to a real web server, with cookies and forms, without a browser."""

import re
import urllib.parse
import urllib.request
from collections.abc import Sequence
from http.cookiejar import CookieJar


class Person:
    """Reads pages of ``root`` and submits their forms."""

    def __init__(self, root: str, login: str, password: str) -> None:
        self._root = root
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        self.submit("/login", username=login, password=password)

    def read(self, path: str) -> str:
        """A page."""
        return self._opener.open(self._root + path, timeout=30).read().decode()  # type: ignore[no-any-return]

    def submit(self, path: str, **fields: str | Sequence[str]) -> str:
        """The page to which a form leads."""
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', self.read(path))
        assert token, f"no form at {path}"
        form = urllib.parse.urlencode({**fields, "csrfmiddlewaretoken": token[1]}, doseq=True).encode()
        request = urllib.request.Request(self._root + path, form, {"Referer": self._root + path})
        return self._opener.open(request, timeout=30).read().decode()  # type: ignore[no-any-return]
