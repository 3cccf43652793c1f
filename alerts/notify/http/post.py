"""Sends one JSON body to a URL and says what became of it, as a notifier's outcome.

2xx is delivered. A redirect and most 4xx are refused for good; 408, 421, 425, 429 and 5xx are to be tried again; all of
these surely did not deliver. A connection that breaks after it was open has perhaps delivered. The library ``requests``
is loaded by the first exchange, since it takes a tenth of a second.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast
from urllib.parse import urlsplit

from django.conf import settings

from alerts.notify.base import DeliveryFailed
from alerts.notify.http import limits
from alerts.notify.http.addresses import AddressRefused, read_networks

if TYPE_CHECKING:
    import requests

    from alerts.notify.http.session import Exchange

_AGAIN = frozenset({408, 421, 425, 429})
_EXCERPT_CHARS = 300


class _SessionModule(Protocol):
    Exchange: "type[Exchange]"
    FAILURES: tuple[type[Exception], ...]


def post_json(url: str, body: bytes, headers: Mapping[str, str]) -> str:
    """Post the body; returns the status and the answer's first words, or raises ``DeliveryFailed``."""
    if len(body) > limits.BODY_BYTES_MAX:
        raise DeliveryFailed(f"{len(body)} bytes, at most {limits.BODY_BYTES_MAX} are sent", permanent=True)
    with open_exchange() as exchange:
        response = request(exchange, "POST", url, data=body, headers={"Content-Type": "application/json", **headers})
    check(response)
    return excerpt(response)


def open_exchange() -> "Exchange":
    """Return an exchange that reaches the internet and the networks of the setting."""
    return _session_module().Exchange(read_networks(settings.SPM_NOTIFY_NETWORKS))


def request(exchange: "Exchange", method: str, url: str, **named: object) -> "requests.Response":
    """Make a request; raises ``DeliveryFailed`` if no answer came, with whether it perhaps arrived."""
    try:
        return exchange.request(method, url, **named)
    except AddressRefused as refusal:
        raise DeliveryFailed(str(refusal), permanent=True) from refusal
    except _session_module().FAILURES as error:
        reason = f"{type(error).__name__}: {_without_address(str(error), url)}"
        raise DeliveryFailed(reason, perhaps=exchange.has_connected) from error


def check(response: "requests.Response") -> None:
    """Raise ``DeliveryFailed`` unless the answer says that the request was taken."""
    status = response.status_code
    if 200 <= status < 300:
        return
    if 300 <= status < 400:
        raise DeliveryFailed(f"{status}: redirects are not followed; write the address it leads to", permanent=True)
    raise DeliveryFailed(excerpt(response), permanent=400 <= status < 500 and status not in _AGAIN)


def excerpt(response: "requests.Response") -> str:
    """Return the status and the first words of the answer."""
    words = " ".join(response.content[:_EXCERPT_CHARS].decode("utf-8", "replace").split())
    return f"{response.status_code} {''.join(sign for sign in words if sign.isprintable())}".strip()


def is_web_address(text: str) -> bool:
    """Whether the text is an http or https URL with a host, and nothing that could be read in two ways."""
    if len(text) > limits.URL_CHARS_MAX or not text.isascii() or not text.isprintable():
        return False
    if any(sign in text for sign in " \\<>\"'`{}|^"):
        return False
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def origin_of(url: str) -> str:
    """Return scheme and host of a URL: what may be shown, as paths of hooks are secrets."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}/…"


def _session_module() -> _SessionModule:
    return cast(_SessionModule, import_module("alerts.notify.http.session"))


def _without_address(reason: str, url: str) -> str:
    """Remove the path of the URL from an error's text: it may be a secret."""
    parts = urlsplit(url)
    hidden = [f"{parts.path}?{parts.query}" if parts.query else parts.path, parts.path]
    for each in hidden:
        if len(each) > 1:
            reason = reason.replace(each, "/…")
    return reason
