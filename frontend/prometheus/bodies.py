"""The bodies of forms and read requests: read as a whole, under one limit, also where they come in chunks.

Senders that do not know a length beforehand send chunks, of which the web server makes a stream that ends by itself;
the framework reads none of that. Enter by `whole`.
"""

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest
from django.http.request import RawPostDataException
from gunicorn.http.errors import ParseException

from spm.errors import BadQuery
from spm.limits import READ_FORM_BYTES_MAX


def whole(request: HttpRequest, what: str = "form") -> bytes:
    """The body; `BadQuery` where it is too large or cannot be read."""
    if in_chunks(request.META):
        return _of_chunks(request.META, what)
    check_length(request.META, what)
    try:
        return request.body
    except (RequestDataTooBig, RawPostDataException, OSError) as error:
        raise BadQuery(f"the {what} cannot be read") from error


def check_length(environ: Mapping[str, Any], what: str = "form") -> None:
    """Raise `BadQuery` for a body that is too large to be read."""
    length = environ.get("CONTENT_LENGTH") or "0"
    if not length.isdecimal() or int(length) > READ_FORM_BYTES_MAX:
        raise _too_large(what)


def in_chunks(environ: Mapping[str, Any]) -> bool:
    """Whether the body has no length, and ends all the same."""
    chunked = str(environ.get("HTTP_TRANSFER_ENCODING", "")).lower() == "chunked"
    return chunked and not environ.get("CONTENT_LENGTH") and bool(environ.get("wsgi.input_terminated"))


def _of_chunks(environ: Mapping[str, Any], what: str) -> bytes:
    try:
        body: bytes = environ["wsgi.input"].read(READ_FORM_BYTES_MAX + 1)
    except (ParseException, OSError) as error:
        raise BadQuery(f"the {what} cannot be read: it is sent in chunks, and one is malformed or missing") from error
    if len(body) > READ_FORM_BYTES_MAX:
        raise _too_large(what)
    return body


def _too_large(what: str) -> BadQuery:
    return BadQuery(f"a {what} has at most {READ_FORM_BYTES_MAX} bytes")
