"""Silences of an organisation: list, create, end. What they do to alerts says ``alerts.telling``.

Times are milliseconds. A silence is not edited: end it and create another, so that what was silent when stays known.
"""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from alerts.models.telling import Silence
from alerts.telling import actions
from alerts.telling.limits import MATCHERS_CHARS_MAX
from frontend.api.accounts.organisations import OrganisationOperation
from frontend.api.alerts.cursor_pages import NewestFirstQuery, newest_page
from frontend.api.base import FailureSerializer
from spm.accounts.organisations.rights import Right
from spm.clock import SystemClock

_clock = SystemClock()
_READ = {401: FailureSerializer, 403: FailureSerializer, 404: FailureSerializer}
_WRITE = {**_READ, 400: FailureSerializer, 422: FailureSerializer}
_MS_MAX = 1 << 62


class SilenceDraftSerializer(serializers.Serializer[Any]):
    """A silence to create."""

    matchers = serializers.CharField(
        max_length=MATCHERS_CHARS_MAX, help_text='which alerts, by their labels: host="web-1", env=~"prod|stage"'
    )
    from_ms = serializers.IntegerField(
        default=None, allow_null=True, min_value=0, max_value=_MS_MAX, help_text="null: now"
    )
    to_ms = serializers.IntegerField(min_value=0, max_value=_MS_MAX, help_text="its end, which it does not include")
    comment = serializers.CharField(default="", allow_blank=True, max_length=200)


class SilenceSerializer(serializers.ModelSerializer[Silence]):
    """A silence."""

    created_by = serializers.CharField(
        source="created_by.username", default=None, allow_null=True, help_text="null: a link of a mail, or who has left"
    )

    class Meta:
        model = Silence
        fields = ["id", "matchers", "from_ms", "to_ms", "comment", "created_by", "created_ms"]


class SilencePageSerializer(serializers.Serializer[Any]):
    """Some silences; ``next`` is the cursor of the following page, null on the last one."""

    silences = SilenceSerializer(many=True)
    next = serializers.IntegerField(allow_null=True)


class SilenceQuery(NewestFirstQuery):
    """Which silences to list."""

    over = serializers.BooleanField(required=False, default=False, help_text="those that are over, too")


class Silences(OrganisationOperation):
    """The silences of an organisation."""

    @extend_schema(
        operation_id="silences",
        parameters=[SilenceQuery],
        responses={200: SilencePageSerializer, 400: FailureSerializer, **_READ},
    )
    def get(self, request: Request, organisation_id: int) -> Response:
        """Those in force or to come, newest first; ``cursor`` goes on where a page ended."""
        own, query = self.membership(organisation_id, Right.SEE_APP), self.validated_query(SilenceQuery)
        rows = Silence.objects.filter(organisation=own.organisation).select_related("created_by")
        rows = rows if query["over"] else rows.filter(to_ms__gt=_clock.now_ms())
        silences, cursor = newest_page(rows, query["cursor"], query["limit"])
        return Response(SilencePageSerializer({"silences": silences, "next": cursor}).data)

    @extend_schema(
        operation_id="silence_create", request=SilenceDraftSerializer, responses={201: SilenceSerializer, **_WRITE}
    )
    def post(self, request: Request, organisation_id: int) -> Response:
        """Create one; for editors. Alerts that match are judged, and not told, from ``from_ms`` until ``to_ms``."""
        own, now_ms = self.membership(organisation_id, Right.SILENCE), _clock.now_ms()
        body = self.validated_body(SilenceDraftSerializer)
        body["from_ms"] = now_ms if body["from_ms"] is None else body["from_ms"]
        silence = actions.add_silence(own.organisation, body.pop("matchers"), **body, by=own.user, now_ms=now_ms)
        return Response(SilenceSerializer(silence).data, status=status.HTTP_201_CREATED)


class OneSilence(OrganisationOperation):
    """One silence."""

    @extend_schema(operation_id="silence", responses={200: SilenceSerializer, **_READ})
    def get(self, request: Request, organisation_id: int, number: int) -> Response:
        """It, even when it is over."""
        own = self.membership(organisation_id, Right.SEE_APP)
        return Response(SilenceSerializer(self.row(Silence, own, number)).data)

    @extend_schema(operation_id="silence_end", request=None, responses={204: None, **_READ})
    def delete(self, request: Request, organisation_id: int, number: int) -> Response:
        """End it now, for editors: what still fires is told. It stays in the list of those that are over."""
        own = self.membership(organisation_id, Right.SILENCE)
        actions.end_silence(self.row(Silence, own, number), by=own.user, now_ms=_clock.now_ms())
        return Response(status=status.HTTP_204_NO_CONTENT)
