"""``GET /metrics``: what this web server counts, and the figures of the whole site, in Prometheus' text form.

For staff who are logged in, and for scrapers that show a token of the product's own app with the scope ``read``; a
token of any other app is told that it may not (403): these numbers speak of all apps.
"""

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from frontend import site_metrics
from spm import telemetry
from spm.accounts import internal_app, tokens


@require_GET
def metrics(request: HttpRequest) -> HttpResponse:
    """See the module."""
    status = _refusal(request)
    if status:
        headers = {"WWW-Authenticate": 'Bearer realm="spm"'} if status == 401 else {}
        words = "For staff, or with a token of the app “This system” that may read.\n"
        return HttpResponse(words, status=status, content_type="text/plain; charset=utf-8", headers=headers)
    body = telemetry.text(telemetry.told(site_metrics.recent(), site_metrics.HELPS))
    return HttpResponse(body, content_type=telemetry.CONTENT_TYPE, headers={"Cache-Control": "no-store"})


def _refusal(request: HttpRequest) -> int:
    """The status for who may not see them; 0 for who may."""
    secret = tokens.from_request(request)
    if secret is None:
        return 0 if request.user.is_active and request.user.is_staff else 403 if request.user.is_authenticated else 401
    principal = tokens.authenticate(secret, "read")
    if principal is None:
        return 401
    return 0 if principal.app_id == internal_app.app_number() else 403
