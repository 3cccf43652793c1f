"""Chats and telephones, through the library ``apprise``: Slack, Teams, Discord, Telegram and others.

Only the schemes of a list are accepted, and of their options only harmless ones: others read files, switch off the
check of certificates, or run programs. The services' classes make their requests by the name ``requests`` of their
module; it is replaced there by ``_CheckedRequests``, so that only checked addresses are reached.
"""

import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from django.conf import settings

from alerts.notify.base import DeliveryFailed, RenderedMessage
from alerts.notify.http import limits
from alerts.notify.http.post import check, excerpt, open_exchange, request
from alerts.notify.links import home_url, rule_links
from alerts.notify.wording import is_over, plain_text, subject

if TYPE_CHECKING:
    import requests

    from alerts.notify.http.session import Exchange

SCHEMES = frozenset(
    [
        "slack",
        "discord",
        "workflows",
        "tgram",
        "mmost",
        "mmosts",
        "rocket",
        "rockets",
        "gchat",
        "wxteams",
        "ntfy",
        "ntfys",
        "gotify",
        "gotifys",
        "pover",
        "pbul",
        "zulip",
        "splunk",
        "twilio",
        "line",
    ]
)
# The addresses of hooks as the services show them.
_HOOKS = {
    "hooks.slack.com": "/services/",
    "discord.com": "/api/webhooks/",
    "discordapp.com": "/api/webhooks/",
    "chat.googleapis.com": "/v1/spaces/",
    "logic.azure.com": "/workflows/",
    "api.powerplatform.com": "/powerautomate/",
}
_OPTIONS = frozenset(
    [
        "to",
        "channel",
        "channels",
        "thread",
        "topic",
        "team",
        "priority",
        "sound",
        "silent",
        "from",
        "route",
        "mode",
        "id",
        "key",
        "token",
        "sig",
        "sp",
        "sv",
        "ver",
        "api-version",
    ]
)
_BREAKS = {"<!": "< !", "@everyone": "@ everyone", "@here": "@ here", "@channel": "@ channel"}  # what calls everybody


@dataclass(slots=True)
class _Attempt:
    """What became of the requests of one hand-over."""

    exchange: "Exchange"
    taken: int = 0
    answer: "requests.Response | None" = None
    failure: DeliveryFailed | None = None


@dataclass(slots=True)
class _Attempts(threading.local):
    """The attempt that runs in this thread."""

    now: _Attempt | None = field(default=None)


class _CheckedRequests:
    """Stands for the module ``requests`` in the modules of apprise's services."""

    def __init__(self) -> None:
        self.attempts = _Attempts()

    def __getattr__(self, name: str) -> Any:
        if name == "Session":
            raise AttributeError("sessions of services are not checked")
        return getattr(import_module("requests"), name)

    def get(self, url: str, **named: Any) -> "requests.Response":
        return self.request("GET", url, **named)

    def post(self, url: str, data: Any = None, **named: Any) -> "requests.Response":
        return self.request("POST", url, data=data, **named)

    def put(self, url: str, data: Any = None, **named: Any) -> "requests.Response":
        return self.request("PUT", url, data=data, **named)

    def delete(self, url: str, **named: Any) -> "requests.Response":
        return self.request("DELETE", url, **named)

    def patch(self, url: str, data: Any = None, **named: Any) -> "requests.Response":
        return self.request("PATCH", url, data=data, **named)

    def head(self, url: str, **named: Any) -> "requests.Response":
        return self.request("HEAD", url, **named)

    def request(self, method: str, url: str, **named: Any) -> "requests.Response":
        """Make a request of the hand-over that runs in this thread."""
        attempt = self.attempts.now
        if attempt is None:
            raise self.ConnectionError("a request outside a hand-over")
        try:
            response = request(attempt.exchange, method, url, **named)
        except DeliveryFailed as failure:
            attempt.failure = failure
            raise self.ConnectionError(str(failure)) from failure
        attempt.answer = response
        attempt.taken += method != "GET" and response.ok
        return response


_REQUESTS = _CheckedRequests()


class ChatNotifier:
    """Sends to an address of apprise, ``slack://…``, or to a hook's web address."""

    receiver_hint = "chat (slack://…, discord://…, tgram://…, a hook's web address)"

    def accepts(self, receiver: str) -> bool:
        return _is_listed(receiver) and service_name(receiver) is not None

    def shown(self, receiver: str) -> str:
        return f"{service_name(receiver) or 'chat'} …{receiver.partition('?')[0].rstrip('/')[-3:]}"

    def render(self, key: str, payload: Mapping[str, Any]) -> RenderedMessage:
        shown = self.shown(payload["receivers"][0])
        return RenderedMessage(_calm(subject(payload)), [shown], (("To", shown),), _text(payload))

    def send(self, key: str, payload: Mapping[str, Any]) -> str:
        service = _open(payload["receivers"][0])
        if service is None:
            raise DeliveryFailed("not an address of a chat", permanent=True)
        kind = "success" if all(map(is_over, payload["lines"])) else "failure"
        with open_exchange() as exchange:
            attempt = _REQUESTS.attempts.now = _Attempt(exchange)
            try:
                is_sent = service.notify(title=_calm(subject(payload)), body=_text(payload), notify_type=kind)
            finally:
                _REQUESTS.attempts.now = None
        return _outcome(attempt, is_sent=bool(is_sent))


@lru_cache(maxsize=1_000)
def service_name(receiver: str) -> str | None:
    """Return the name of the service that the address belongs to, or None."""
    service = _open(receiver)
    return None if service is None else str(service.service_name)


def _is_listed(receiver: str) -> bool:
    if len(receiver) > limits.URL_CHARS_MAX or not receiver.isprintable():
        return False
    with suppress(ValueError):
        parts = urlsplit(receiver)
        host = parts.hostname or ""
        is_hook = parts.scheme == "https" and any(
            (host == name or host.endswith(f".{name}")) and parts.path.startswith(path) for name, path in _HOOKS.items()
        )
        options = {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
        return (parts.scheme in SCHEMES or is_hook) and options <= _OPTIONS
    return False


def _open(receiver: str) -> Any:
    """Return the service of an address, with checked requests; None if it has none of the list."""
    if not _is_listed(receiver):
        return None
    apprise = import_module("apprise")  # half a second with its services: most processes need none
    asset = apprise.AppriseAsset(app_id="SPM", app_url=settings.SPM_BASE_URL, allow_templates=False)
    service = apprise.Apprise.instantiate(receiver, asset=asset, suppress_exceptions=True)
    schemes = {*_names(getattr(service, "protocol", None)), *_names(getattr(service, "secure_protocol", None))}
    if service is None or not schemes & SCHEMES:
        return None
    for one in type(service).__mro__:
        module = sys.modules[one.__module__]
        if module.__name__.startswith("apprise.plugins") and hasattr(module, "requests"):
            module.requests = _REQUESTS  # type: ignore[attr-defined]  # by design: see above
    service.overflow_mode = apprise.OverflowMode.TRUNCATE
    if hasattr(service, "include_image"):
        service.include_image = False
    return service


def _names(of: Any) -> tuple[str, ...]:
    return (of,) if isinstance(of, str) else tuple(of or ())


def _outcome(attempt: _Attempt, *, is_sent: bool) -> str:
    if is_sent and attempt.answer is not None:
        return excerpt(attempt.answer)
    partly = attempt.taken > 0
    if (failure := attempt.failure) is not None:
        raise DeliveryFailed(str(failure), permanent=failure.permanent, perhaps=failure.perhaps or partly)
    if attempt.answer is None:
        raise DeliveryFailed("the service cannot be used with this address", permanent=True)
    check(attempt.answer)
    raise DeliveryFailed(f"not taken: {excerpt(attempt.answer)}")


def _text(payload: Mapping[str, Any]) -> str:
    return _calm(plain_text(payload, rule_links(payload), home_url()))


def _calm(text: str) -> str:
    """Break what would call everybody of a channel: labels come from machines."""
    for sign, broken in _BREAKS.items():
        text = text.replace(sign, broken)
    return text
