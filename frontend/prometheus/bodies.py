"""Reads the bodies of forms and read requests, under one limit. Enter by `read_body`.

The web server hands over a body when all of it has come, with its length, whether it came in chunks or at once.
"""

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest
from django.http.request import RawPostDataException

from spm.errors import BadQuery
from spm.limits import READ_FORM_BYTES_MAX


def read_body(request: HttpRequest, what: str = "form") -> bytes:
    """Read the body; raises `BadQuery` if it is too large or cannot be read."""
    check_length(request.META, what)
    try:
        return request.body
    except (RequestDataTooBig, RawPostDataException, OSError) as error:
        raise BadQuery(f"the {what} cannot be read") from error


def check_length(environ: Mapping[str, Any], what: str = "form") -> None:
    """Raise `BadQuery` for a body that is too large."""
    length = environ.get("CONTENT_LENGTH") or "0"
    if not length.isdecimal() or int(length) > READ_FORM_BYTES_MAX:
        raise BadQuery(f"got a {what} of {length[:20]} bytes, wanted {READ_FORM_BYTES_MAX} at most; ask for less")
