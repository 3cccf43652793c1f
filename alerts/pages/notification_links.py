"""The page of a signed link: it says what the link would do and asks; only the button does it.

Mail programs and scanners open links, so opening one changes nothing. The link itself is the authority: no session is
read, so no other page can act in a person's name, and the button needs no token against that.
"""

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from alerts.notify.links import read_link
from alerts.telling import link_actions
from spm.clock import SystemClock

_clock = SystemClock()


@csrf_exempt
@require_http_methods(["GET", "HEAD", "POST"])
def link_page(request: HttpRequest, text: str) -> HttpResponse:
    """Ask, or do it."""
    now_ms, link = _clock.now_ms(), read_link(text)
    target = None if link is None else link_actions.target_of(link, now_ms)
    if target is None:
        raise Http404("This link is not valid.")
    is_done = request.method == "POST" and not target.is_expired
    result = link_actions.act(target, now_ms) if is_done else ""
    status = 410 if target.is_expired else 200
    response = render(request, "alerts/link.html", {"target": target, "result": result}, status=status)
    response["Cache-Control"] = "no-store"
    response["Referrer-Policy"] = "no-referrer"
    response["X-Robots-Tag"] = "noindex"
    return response
