"""The headers that protect an answer: nothing is sniffed, framed, run or kept.

Enter by ``protective_headers`` for answers to programs that pass by Django, by ``PrivateAnswers`` for all others.
"""

from collections.abc import Callable
from functools import lru_cache

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase

POLICY = "default-src 'none'; frame-ancestors 'none'"

_DEVICES = (
    "accelerometer",
    "camera",
    "geolocation",
    "gyroscope",
    "magnetometer",
    "microphone",
    "midi",
    "payment",
    "usb",
)
PERMISSIONS = ", ".join(f"{device}=()" for device in _DEVICES)  # no page needs any of them


class PrivateAnswers:
    """Middleware: no cache keeps an answer unless its view says for how long, and no page uses a device.

    It stands around the compression of answers, which leaves those alone whose views say ``no-store``.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        if response.status_code != 304:  # which would take what the client has from its cache
            response.headers.setdefault("Cache-Control", "no-store")
        if response.headers.get("Content-Type", "").startswith("text/html"):
            response.headers["Permissions-Policy"] = PERMISSIONS
        return response


def protective_headers() -> dict[str, str]:
    """Return the headers that every answer to a program has."""
    return _headers(
        settings.X_FRAME_OPTIONS,
        settings.SECURE_REFERRER_POLICY,
        settings.SECURE_CROSS_ORIGIN_OPENER_POLICY,
    )


def transport_security(is_secure: bool) -> dict[str, str]:
    """Return the header that makes browsers remember HTTPS, where the site has it and the request came by it."""
    if not settings.SECURE_HSTS_SECONDS or not is_secure:
        return {}
    return {"Strict-Transport-Security": f"max-age={settings.SECURE_HSTS_SECONDS}"}


@lru_cache(maxsize=4)
def _headers(frame_options: str, referrer_policy: str, opener_policy: str) -> dict[str, str]:
    return {
        "Content-Security-Policy": POLICY,
        "X-Frame-Options": frame_options,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": referrer_policy,
        "Cross-Origin-Opener-Policy": opener_policy,
        "Cache-Control": "no-store",
    }
