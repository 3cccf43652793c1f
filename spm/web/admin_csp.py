"""Relaxes the content policy under ``/admin/``.

The strict policy of ``spm.settings.security`` holds everywhere else. The admin theme evaluates Alpine expressions and
sets inline styles, so it gets exactly these two freedoms. Enter by ``AdminPolicy``.
"""

from collections.abc import Callable

from csp.constants import SELF, UNSAFE_EVAL, UNSAFE_INLINE
from django.http import HttpRequest, HttpResponse

ADMIN_POLICY = {"script-src": [SELF, UNSAFE_EVAL, UNSAFE_INLINE], "style-src": [SELF, UNSAFE_INLINE]}


class AdminPolicy:
    """Middleware that replaces two directives of the content policy on admin pages."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self._get_response(request)
        if request.path_info.startswith("/admin/"):
            response._csp_replace = ADMIN_POLICY  # type: ignore[attr-defined]  # django-csp's own mark
        return response
