"""The base of all operations of Alertmanager's API: which app they work on, and failures in its form, one JSON string.

Matchers come in Alertmanager's forms: as the text of one matcher (``host=~"web.*"``, also without quotes), and as an
object with a name, a value and two flags. Enter by ``AlertmanagerOperation``.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers
from rest_framework.response import Response

from alerts.telling import limits
from alerts.telling.decide.matchers import Matchers, select
from frontend.api.base import Operation
from spm.accounts.models import App
from spm.accounts.organisations.rights import Right
from spm.errors import BadQuery
from spm.store.matchers import Matcher

TAG = "alertmanager"
_ONE_MATCHER = re.compile(r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(=~|!~|!=|=)\s*(.*?)\s*", re.DOTALL)


class AppQuery(serializers.Serializer[Any]):
    """Whose alerts, where a person asks; a token is of one app."""

    app = serializers.IntegerField(required=False, min_value=0, max_value=2**62)


class FilterQuery(AppQuery):
    """Which to list."""

    filter = serializers.ListField(
        child=serializers.CharField(max_length=limits.MATCHERS_CHARS_MAX),
        required=False,
        default=list,
        max_length=limits.MATCHERS_MAX,
        help_text='one matcher each, such as host="web-1"',
    )


class AlertmanagerOperation(Operation):
    """An operation on the alerts of one app."""

    def asked_app(self, right: Right = Right.SEE_APP) -> App:
        """Return the app that the caller means."""
        return self.app(self.validated_query(AppQuery).get("app"), right)

    def handle_exception(self, exc: Exception) -> Response:
        """Answer a failure as one text, as Alertmanager's clients read it."""
        response = super().handle_exception(exc)
        if isinstance(response.data, dict):
            response.data = str(response.data["error"])
        return response


def failures(*statuses: int) -> Mapping[int, OpenApiResponse]:
    """Describe failures with these statuses in the schema."""
    return {status: OpenApiResponse(OpenApiTypes.STR, description="why not") for status in statuses}


def read_filter(texts: Iterable[str]) -> Matchers:
    """Parse matchers, one in each text; raises ``BadQuery``."""
    matchers = tuple(map(_one_matcher, texts))
    select(matchers, [{}])  # RE2 refuses a wrong expression here
    return matchers


def matching(labels: Sequence[Mapping[str, str]], matchers: Matchers) -> Sequence[bool]:
    """Return which label sets satisfy every matcher."""
    return [bool(chosen) for chosen in select(matchers, labels)]


def silence_id(number: int) -> str:
    """Write the number of a silence as a UUID, as Alertmanager's clients want it."""
    digits = f"{number:032d}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _one_matcher(text: str) -> Matcher:
    match = _ONE_MATCHER.fullmatch(text)
    if match is None:
        raise BadQuery(f'bad matcher format: {text[:100]}; one looks like host="web-1"')
    name, op, value = match.groups()
    if value.startswith('"'):
        try:
            value = json.loads(value, strict=False)
        except ValueError as error:
            raise BadQuery(f"bad matcher format: {text[:100]}") from error
    return Matcher(name, op, value)
