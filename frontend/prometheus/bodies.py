"""Reads the bodies of forms and read requests, under one limit, also if they come in chunks.

Clients that do not know the length beforehand send chunks. The web server turns them into a stream with an end, which
Django would not read, as the request has no length. Enter by `read_body`.
"""

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest
from django.http.request import RawPostDataException
from gunicorn.http.errors import ParseException

from spm.errors import BadQuery
from spm.limits import READ_FORM_BYTES_MAX


def read_body(request: HttpRequest, what: str = "form") -> bytes:
    """Read the body; raises `BadQuery` if it is too large or cannot be read."""
    if is_chunked(request.META):
        return _read_chunks(request.META, what)
    check_length(request.META, what)
    try:
        return request.body
    except (RequestDataTooBig, RawPostDataException, OSError) as error:
        raise BadQuery(f"the {what} cannot be read") from error


def check_length(environ: Mapping[str, Any], what: str = "form") -> None:
    """Raise `BadQuery` for a body that is too large."""
    length = environ.get("CONTENT_LENGTH") or "0"
    if not length.isdecimal() or int(length) > READ_FORM_BYTES_MAX:
        raise _too_large(what)


def is_chunked(environ: Mapping[str, Any]) -> bool:
    """Whether the body comes in chunks, without a length."""
    chunked = str(environ.get("HTTP_TRANSFER_ENCODING", "")).lower() == "chunked"
    return chunked and not environ.get("CONTENT_LENGTH") and bool(environ.get("wsgi.input_terminated"))


def _read_chunks(environ: Mapping[str, Any], what: str) -> bytes:
    try:
        body: bytes = environ["wsgi.input"].read(READ_FORM_BYTES_MAX + 1)
    except (ParseException, OSError) as error:
        raise BadQuery(f"the {what} cannot be read: it is sent in chunks, and one is malformed or missing") from error
    if len(body) > READ_FORM_BYTES_MAX:
        raise _too_large(what)
    return body


def _too_large(what: str) -> BadQuery:
    return BadQuery(f"a {what} has at most {READ_FORM_BYTES_MAX} bytes")
