"""Answers of no view: an error of the server, "Almost ready" while kernels compile, requests that are refused early.

Refused before their view are forms that are too large or bring files, and too many passwords. Nothing here takes files,
so none is read, neither into memory nor onto the disk. Enter by ``bad_request`` and
``server_error``, Django's handlers of malformed requests and of errors, and ``answers_refusals``.
"""

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn

from django.conf import settings
from django.core.exceptions import DisallowedHost, RequestDataTooBig, TooManyFieldsSent, TooManyFilesSent
from django.core.files.uploadhandler import FileUploadHandler
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.views import defaults

from spm.errors import LoginRefused, StillCompiling
from spm.limits import RETRY_AFTER_S
from spm.web.error_status import DATABASE_AWAY, HOST_REFUSED, text_of

_INTERFACES = ("/api/", "/prometheus/")
_DATABASE_AWAY_TEXTS = {
    "heading": "The database does not answer now",
    "text": "Samples that were accepted are safe. Try again in a few seconds; the log of the server says what the"
    " database answered.",
}
_REFRESH_S = 5
_TOO_LARGE: dict[type[Exception], str] = {
    RequestDataTooBig: f"A form may have at most {settings.DATA_UPLOAD_MAX_MEMORY_SIZE:,} bytes.",
    TooManyFieldsSent: f"A form may have at most {settings.DATA_UPLOAD_MAX_NUMBER_FIELDS:,} fields.",
    TooManyFilesSent: "Files are not taken here.",
}


class NoUploads(FileUploadHandler):
    """Refuses a form with a file, or with more bytes than a form may have, before it is read."""

    def handle_raw_input(
        self, input_data: Any, META: Any, content_length: int, boundary: str, encoding: Any = None
    ) -> None:
        """Check the length; the form itself is parsed as usual."""
        if content_length > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
            raise RequestDataTooBig(_TOO_LARGE[RequestDataTooBig])

    def new_file(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse a file."""
        raise TooManyFilesSent(_TOO_LARGE[TooManyFilesSent])

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        """Take nothing."""

    def file_complete(self, file_size: int) -> None:
        """Return no file."""


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer 413 to a form that is too large, 400 to every other malformed request."""
    text = _TOO_LARGE.get(type(exception))
    if isinstance(exception, DisallowedHost):
        return HttpResponse(f"{HOST_REFUSED[:1].upper()}{HOST_REFUSED[1:]}.\n", status=400, content_type="text/plain")
    if text is None:
        return defaults.bad_request(request, exception)
    return _refusal(request, 413, "This form is too large", text)


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer 503 while the database is away or kernels are being compiled, 500 to all else that no view has handled."""
    error = sys.exception()
    if not isinstance(error, (*DATABASE_AWAY, StillCompiling)):
        return defaults.server_error(request)
    if request.path_info.startswith(_INTERFACES):
        answer: HttpResponse = JsonResponse({"error": text_of(error)}, status=503)
    elif isinstance(error, StillCompiling):
        texts = {"heading": "Almost ready", "text": f"{str(error)[:1].upper()}{str(error)[1:]}."}
        answer = HttpResponse(render_to_string("503.html", texts), status=503)
        answer["Refresh"] = str(_REFRESH_S)  # it is the page that was asked for as soon as that can be shown
    else:  # without the person, whom the database knows
        answer = HttpResponse(render_to_string("503.html", _DATABASE_AWAY_TEXTS), status=503)
    answer["Retry-After"] = str(RETRY_AFTER_S)
    return answer


def answers_refusals(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Answer 429 where a view could not hash a password, because too many others are being hashed."""

    @wraps(view)
    def answer(request: HttpRequest, *arguments: Any, **named: Any) -> HttpResponseBase:
        try:
            return view(request, *arguments, **named)
        except LoginRefused as refusal:
            response = _refusal(request, 429, "Please try again", str(refusal))
            response["Retry-After"] = str(refusal.retry_after_s)
            return response

    return answer


def _refusal(request: HttpRequest, status: int, title: str, text: str) -> HttpResponse:
    if request.path_info.startswith(_INTERFACES):
        return JsonResponse({"error": text}, status=status)
    return render(request, "refused.html", {"title": title, "text": text}, status=status)
