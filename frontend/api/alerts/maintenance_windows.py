"""Maintenance windows of an organisation, which recur: list, create, replace, delete.

A window begins at each time of a cron expression in a time zone. Durations and times are milliseconds.
"""

from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from alerts.models.telling import MuteTiming
from alerts.telling import limits
from alerts.telling.configuration import next_windows_of
from alerts.telling.settings import rows
from frontend.api.accounts.organisations import OrganisationOperation
from frontend.api.alerts.cursor_pages import NewestFirstQuery, newest_page
from frontend.api.alerts.policies import MatchersField
from frontend.api.base import FailureSerializer
from spm.accounts.organisations.rights import Right
from spm.clock import SystemClock

_clock = SystemClock()
_READ = {401: FailureSerializer, 403: FailureSerializer, 404: FailureSerializer}
_WRITE = {**_READ, 400: FailureSerializer, 409: FailureSerializer, 422: FailureSerializer}


class WindowDraftSerializer(serializers.Serializer[Any]):
    """A maintenance window to create or to put in place of another."""

    name = serializers.CharField(max_length=120)
    matchers = MatchersField()
    cron = serializers.CharField(max_length=120, help_text="when it begins, in five fields: 0 2 * * 6")
    zone = serializers.CharField(max_length=64, default="UTC", help_text="the time zone of that: Europe/Berlin")
    duration_ms = serializers.IntegerField(min_value=1, max_value=limits.WINDOW_MS_MAX)


class StretchSerializer(serializers.Serializer[Any]):
    """A stretch of time, without its end."""

    from_ms = serializers.IntegerField()
    to_ms = serializers.IntegerField(allow_null=True, help_text="null: no end is in sight")


class WindowSerializer(WindowDraftSerializer):
    """A maintenance window; ``following``: when it holds now or next, and the two times after that."""

    id = serializers.IntegerField(source="pk")
    following = serializers.SerializerMethodField()

    @extend_schema_field(StretchSerializer(many=True))
    def get_following(self, window: MuteTiming) -> Any:
        """Return the next three, as far as they begin within a year."""
        return StretchSerializer(next_windows_of(window, _clock.now_ms()), many=True).data


class WindowPageSerializer(serializers.Serializer[Any]):
    """Some maintenance windows; ``next`` is the cursor of the following page, null on the last one."""

    maintenance_windows = WindowSerializer(many=True)
    next = serializers.IntegerField(allow_null=True)


class MaintenanceWindows(OrganisationOperation):
    """The maintenance windows of an organisation."""

    @extend_schema(
        operation_id="maintenance_windows",
        parameters=[NewestFirstQuery],
        responses={200: WindowPageSerializer, 400: FailureSerializer, **_READ},
    )
    def get(self, request: Request, organisation_id: int) -> Response:
        """Some of them, newest first; ``cursor`` goes on where a page ended."""
        own, query = self.membership(organisation_id, Right.SEE_APP), self.validated_query(NewestFirstQuery)
        windows, cursor = newest_page(MuteTiming.objects.filter(organisation=own.organisation), **query)
        return Response(WindowPageSerializer({"maintenance_windows": windows, "next": cursor}).data)

    @extend_schema(
        operation_id="maintenance_window_create",
        request=WindowDraftSerializer,
        responses={201: WindowSerializer, **_WRITE},
    )
    def post(self, request: Request, organisation_id: int) -> Response:
        """Create one, for editors. Alerts that match are judged, and not told, while a window lasts."""
        own, body = self.membership(organisation_id, Right.SILENCE), self.validated_body(WindowDraftSerializer)
        window = MuteTiming(organisation=own.organisation)
        rows.write(window, body, by=own.user, now_ms=_clock.now_ms())
        return Response(WindowSerializer(window).data, status=status.HTTP_201_CREATED)


class OneMaintenanceWindow(OrganisationOperation):
    """One maintenance window."""

    @extend_schema(
        operation_id="maintenance_window_replace",
        request=WindowDraftSerializer,
        responses={200: WindowSerializer, **_WRITE},
    )
    def put(self, request: Request, organisation_id: int, number: int) -> Response:
        """Put another in its place; for editors."""
        own, body = self.membership(organisation_id, Right.SILENCE), self.validated_body(WindowDraftSerializer)
        window = self.row(MuteTiming, own, number)
        rows.write(window, body, by=own.user, now_ms=_clock.now_ms())
        return Response(WindowSerializer(window).data)

    @extend_schema(operation_id="maintenance_window_delete", request=None, responses={204: None, **_READ})
    def delete(self, request: Request, organisation_id: int, number: int) -> Response:
        """Delete it, for editors: what it kept back and still fires is told."""
        own = self.membership(organisation_id, Right.SILENCE)
        rows.delete(self.row(MuteTiming, own, number), by=own.user, now_ms=_clock.now_ms())
        return Response(status=status.HTTP_204_NO_CONTENT)
