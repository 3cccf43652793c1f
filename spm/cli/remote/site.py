"""Calls the REST interface of a site with a token. Every failure is a ``CallFailed`` with one sentence.

Enter by ``Site``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import requests

from spm.errors import SpmError

TIMEOUT_S = 130  # the longest query may take two minutes


class CallFailed(SpmError):
    """The site could not be asked, or refused; the text is for the person at the terminal."""


@dataclass(frozen=True, slots=True)
class Site:
    """A site, a token, and the app that commands are about (``None``: the token's only one)."""

    url: str
    token: str
    app: int | None = None

    def query(self, call: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return the ``data`` of a call of the Prometheus API, with the ``infos`` and ``warnings`` of its answer."""
        whole: dict[str, Any] = self._call("POST", f"/prometheus/api/v1/{call}", data=dict(parameters)).json()
        return {**whole["data"], "notes": [*whole.get("warnings", ()), *whole.get("infos", ())]}

    def get(self, path: str) -> Any:
        """Return the JSON of an address below the app's."""
        return self._call("GET", self._of_app(path)).json()

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Post JSON to an address below the app's."""
        return self._call("POST", self._of_app(path), json=dict(body or {})).json()

    def apps(self) -> list[dict[str, Any]]:
        """Return the apps that the token can read."""
        listed: list[dict[str, Any]] = self._call("GET", "/api/v1/apps").json()
        return listed

    def rule_file(self, name: str) -> str | None:
        """Return a rule file as YAML; ``None`` if there is none of this name."""
        answer = self._send("GET", self._of_app(_rule_file(name)))
        return None if answer.status_code == 404 else str(self._checked(answer).text)

    def put_rule_file(self, name: str, text: str, *, dry_run: bool) -> dict[str, Any]:
        """Bring the app's rules in step with a file; return what changed, or would change."""
        address = self._of_app(_rule_file(name))
        result: dict[str, Any] = self._call("PUT", address, params=_dry(dry_run), data=text.encode()).json()
        return result

    def delete_rule_file(self, name: str, *, dry_run: bool) -> dict[str, Any]:
        """Delete the rules of a file; return what changed, or would change."""
        result: dict[str, Any] = self._call("DELETE", self._of_app(_rule_file(name)), params=_dry(dry_run)).json()
        return result

    def _of_app(self, path: str) -> str:
        return f"/api/v1/apps/{self._app_number()}/{path}"

    def _app_number(self) -> int:
        if self.app is not None:
            return self.app
        numbers = [int(app["id"]) for app in self.apps()]
        if len(numbers) != 1:
            raise CallFailed(f"The token reads {len(numbers)} apps; name one with --app or SPM_APP.")
        return numbers[0]

    def _call(self, method: str, path: str, **request: Any) -> requests.Response:
        return self._checked(self._send(method, path, **request))

    def _send(self, method: str, path: str, **request: Any) -> requests.Response:
        if not self.token:
            raise CallFailed("There is no token. Create one on the app's page of tokens, and put it into SPM_TOKEN.")
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/json, application/yaml"}
        try:
            return requests.request(
                method,
                self.url.rstrip("/") + path,
                headers=headers,
                timeout=TIMEOUT_S,
                allow_redirects=False,
                **request,
            )
        except requests.RequestException as error:
            raise CallFailed(f"{self.url} cannot be asked: {_cause(error)}. Is --url (SPM_URL) right?") from error

    def _checked(self, answer: requests.Response) -> requests.Response:
        if answer.ok and not answer.is_redirect:
            return answer
        raise CallFailed(f"{self.url} answered {answer.status_code}: {_reason(answer)}")


def _rule_file(name: str) -> str:
    return f"rules/files/{quote(name, safe='')}"


def _dry(dry_run: bool) -> dict[str, str]:
    return {"dry_run": "true"} if dry_run else {}


def _cause(error: BaseException) -> str:
    """Return the innermost reason, without the addresses of objects around it."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__ or error
    return str(getattr(error, "strerror", None) or error)


def _reason(answer: requests.Response) -> str:
    """Return the sentence of a failure, by the forms that the interfaces have."""
    try:
        body = answer.json()
    except ValueError:
        return answer.reason or "no reason was given"
    if not isinstance(body, dict):
        return str(body)
    sentence = str(body.get("error") or body.get("detail") or body)
    more = {name: body.get(name) for name in ("got", "wanted", "remedy") if body.get(name)}
    return ". ".join([sentence.rstrip("."), *(f"{name}: {value}".rstrip(".") for name, value in more.items())]) + "."
