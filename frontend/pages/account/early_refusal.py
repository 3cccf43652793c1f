"""Refuses a login that has to wait on the event loop, before any middleware, form or page: a flood costs little.

Only what this process has just refused is refused here (``recent_refusals``); the page is a small one, without the
form. All other logins go to their page, as does the first refusal. Enter by ``refuse_at_once``.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from django.core.exceptions import BadRequest, SuspiciousOperation
from django.template.loader import render_to_string

from spm.accounts.logins.origins import origin_of
from spm.accounts.logins.recent_refusals import process_refusals
from spm.clock import SystemClock
from spm.telemetry import count_request
from spm.web.protective_headers import PERMISSIONS, protective_headers, transport_security
from spm.web.request import Request

_clock = SystemClock()
_FORM = "application/x-www-form-urlencoded"
_POLICY = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_TEXTS_CACHED = 128  # more than there are waiting times: up to 90 seconds, then minutes


def refuse_at_once(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes] | None:
    """Answer the form of the login page with 429, by what is in memory; ``None`` where its view must answer."""
    if not process_refusals or not environ.get("CONTENT_TYPE", "").startswith(_FORM):
        return None
    begun_s, request = _clock.monotonic(), Request(environ)
    try:
        login = request.POST.get("username") or ""
    except (BadRequest, SuspiciousOperation):  # another charset; too large, or too many fields
        return None
    throttled = process_refusals.refuse(origin_of(request, login), _clock.now_ms())
    if throttled is None:
        return None
    body = _page(str(throttled))
    headers = {
        **protective_headers(),
        **transport_security(environ["wsgi.url_scheme"] == "https"),
        "Content-Security-Policy": _POLICY,
        "Permissions-Policy": PERMISSIONS,
        "Content-Type": "text/html; charset=utf-8",
        "Content-Length": str(len(body)),
        "Retry-After": str(throttled.retry_after_s),
    }
    start_response("429 Too Many Requests", list(headers.items()))
    count_request("account_login", "POST", 429, begun_s)
    return (body,)


@lru_cache(maxsize=_TEXTS_CACHED)
def _page(text: str) -> bytes:
    return render_to_string("login_refused.html", {"text": text}).encode()
