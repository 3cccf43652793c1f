"""Endpoints of ingest as Django views: for the test client, and for servers that run the site as plain WSGI.

The event loop answers the same endpoints without Django. Enter by ``view_of``; ``with_error_answers`` gives a view
that is Django's alone the same answers to errors.
"""

from collections.abc import Callable
from functools import wraps

from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt

from ingest.http.answers import ANSWERED, WrongMethod, error_answer
from ingest.http.body import Stream
from ingest.http.endpoints.base import Endpoint
from ingest.http.exchange import PushAnswer, PushRequest
from ingest.http.reception import receive
from spm.web.protective_headers import protective_headers

View = Callable[..., HttpResponseBase]


def view_of(endpoint: Endpoint) -> Callable[..., HttpResponse]:
    """Return the Django view of an endpoint."""

    @csrf_exempt
    def view(request: HttpRequest, **_path: str) -> HttpResponse:
        push = _push_request(request)
        return _response(receive(endpoint, push, _stream(request, push)))

    return view


def with_error_answers(view: View) -> View:
    """Wrap a view: it needs no CSRF token (programs have none), and each of our errors becomes an answer."""

    @csrf_exempt
    @wraps(view)
    def wrapped(request: HttpRequest, **path: str) -> HttpResponseBase:
        try:
            response = view(request, **path)
            if isinstance(response, HttpResponseNotAllowed):
                raise WrongMethod(request.method or "", response.headers["Allow"].split(", "))
        except ANSWERED as error:
            return _response(error_answer(_push_request(request), error))
        return response

    return wrapped


def _push_request(request: HttpRequest) -> PushRequest:
    headers = {name.lower(): value for name, value in request.headers.items()}
    query_string, address = request.META.get("QUERY_STRING", ""), request.META.get("REMOTE_ADDR", "")
    return PushRequest(request.method or "", request.path, query_string, headers, address)


def _stream(request: HttpRequest, push: PushRequest) -> Stream:
    """Return the body; without a length (chunked) the server's own stream, where it promises to end it."""
    if not push.header("content-length").isdecimal() and request.META.get("wsgi.input_terminated"):
        stream: Stream = request.META["wsgi.input"]
        return stream
    return request


def _response(answer: PushAnswer) -> HttpResponse:
    response = HttpResponse(answer.body, status=answer.status, headers={**protective_headers(), **answer.headers})
    del response.headers["Content-Type"]  # which Django would invent
    if answer.content_type:
        response.headers["Content-Type"] = answer.content_type
    if answer.status != 204:
        response.headers["Content-Length"] = str(len(answer.body))
    return response
