"""A push and its answer as plain values, so that no endpoint depends on a web framework.

The event loop makes a ``PushRequest`` of each request; under Django's test client ``django_views`` does. Enter by
``PushRequest`` and ``PushAnswer``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qs

import orjson

from spm.errors import BadMessage
from spm.limits import PUSH_PARAMETERS_MAX

JSON = "application/json"
_CACHED_CHARS = 128


@dataclass(slots=True)
class PushRequest:
    """The head of a request. ``headers``: values by lower-case name; ``address``: of the client."""

    method: str
    path: str
    query_string: str
    headers: Mapping[str, str]
    address: str = ""
    _parameters: dict[str, list[str]] | None = None

    def header(self, name: str) -> str:
        """Return a header's value, "" if it is missing."""
        return self.headers.get(name, "")

    def parameter(self, name: str) -> str:
        """Return the last value of a parameter of the URL, "" if it is missing."""
        return self.parameters(name)[-1] if self.query_string and self.parameters(name) else ""

    def parameters(self, name: str) -> list[str]:
        """Return all values of a parameter of the URL."""
        if self._parameters is None:
            short = len(self.query_string) <= _CACHED_CHARS
            self._parameters = (_read_short if short else read_fields)(self.query_string)
        return self._parameters.get(name, [])


@dataclass(frozen=True, slots=True)
class PushAnswer:
    """An answer: its status, body and headers (without those that protect every answer)."""

    status: int
    body: bytes = b""
    content_type: str = ""
    headers: dict[str, str] = field(default_factory=dict)


def json_answer(fields: Mapping[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> PushAnswer:
    """Return an answer with a JSON object as body."""
    return PushAnswer(status, orjson.dumps(fields), JSON, headers or {})


@lru_cache(maxsize=1_024)
def _read_short(text: str) -> dict[str, list[str]]:
    """Return the fields of a short query string: senders repeat theirs in every request."""
    return read_fields(text)


def read_fields(text: str) -> dict[str, list[str]]:
    """Return the values by name of a query string or form; raise ``BadMessage`` for too many."""
    try:
        return parse_qs(text, keep_blank_values=True, max_num_fields=PUSH_PARAMETERS_MAX)
    except ValueError as error:
        raise BadMessage("too many parameters", wanted=f"at most {PUSH_PARAMETERS_MAX}") from error
