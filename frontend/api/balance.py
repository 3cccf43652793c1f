"""The balance of an app: where its samples are now, the outcomes of the last hours, and messages that never arrived."""

from typing import Any

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from frontend.api.base import FailureSerializer, Operation
from frontend.presenters import delivery
from spm import limits

_FAILURES = {401: FailureSerializer, 404: FailureSerializer, 503: FailureSerializer}
_QUERY_FAILURES = {**_FAILURES, 400: FailureSerializer}


class OutcomesSerializer(serializers.Serializer[Any]):
    """How many are where: ``accepted`` is the sum of all the others, or the balance does not add up."""

    accepted = serializers.IntegerField()
    stored = serializers.IntegerField()
    late = serializers.IntegerField(help_text="arrived for an hour past its retention; in no answer")
    rejected = serializers.IntegerField(help_text="among samples: lines that could not be read")
    dead = serializers.IntegerField(help_text="could not be stored; kept as dead letters")
    queued = serializers.IntegerField(help_text="durable, not yet stored")
    in_flight = serializers.IntegerField(help_text="a server is processing them; not acknowledged yet")
    unconfirmed = serializers.IntegerField(help_text="a server ended while it processed them")


class DiscrepancySerializer(serializers.Serializer[Any]):
    """A server process whose counts do not add up: what is missing, or (below zero) too much."""

    process = serializers.IntegerField()
    messages = serializers.IntegerField()
    samples = serializers.IntegerField()


class BalanceSerializer(serializers.Serializer[Any]):
    """The balance since the app began."""

    at = serializers.DateTimeField()
    adds_up = serializers.BooleanField()
    lag_ms = serializers.IntegerField(help_text="age of the oldest announcement without an outcome")
    messages = OutcomesSerializer()
    samples = OutcomesSerializer()
    findings = DiscrepancySerializer(many=True)
    damaged_rows = serializers.IntegerField(help_text="rows that cannot be read: their messages seem to wait")
    unread_processes = serializers.ListField(
        child=serializers.IntegerField(),
        help_text="processes whose counts cannot be read: none of the numbers include them",
    )


class HoursQuery(serializers.Serializer[dict[str, Any]]):
    """How far back."""

    hours = serializers.IntegerField(
        required=False,
        default=24,
        min_value=1,
        max_value=limits.BALANCE_HOURS_MAX,
        help_text="number of hours, including the present one",
    )


class RowsQuery(HoursQuery):
    """Which rows, and in which format."""

    content = serializers.ChoiceField(choices=sorted(delivery.CONTENTS), required=False, default="hours")
    form = serializers.ChoiceField(choices=sorted(delivery.FORMS), required=False, default="csv")


class BalanceLineSerializer(serializers.Serializer[Any]):
    """Messages and samples with an outcome."""

    messages = serializers.IntegerField()
    samples = serializers.IntegerField(source="accepted")
    stored = serializers.IntegerField()
    late = serializers.IntegerField()
    rejected = serializers.IntegerField()
    dead = serializers.IntegerField()


class HourBalanceSerializer(BalanceLineSerializer):
    """Outcomes of one hour of acceptance."""

    hour = serializers.SerializerMethodField()

    def get_hour(self, line: Any) -> str:
        """Return when the hour began, as RFC 3339."""
        return delivery.rfc3339(line.start_ms)


class SourceBalanceSerializer(BalanceLineSerializer):
    """Outcomes of one source."""

    source = serializers.CharField()  # type: ignore[assignment]  # the base class has an attribute of this name


class GapSerializer(serializers.Serializer[Any]):
    """Messages that a source numbered and that never arrived."""

    source = serializers.CharField()  # type: ignore[assignment]
    spool = serializers.CharField(help_text="names one unbroken count of the source")
    first = serializers.IntegerField()
    last = serializers.IntegerField()
    messages = serializers.IntegerField()
    after = serializers.DateTimeField(help_text="when the message before them was accepted")
    before = serializers.DateTimeField(help_text="when the message after them was accepted")


class SpanSerializer(serializers.Serializer[Any]):
    """Outcomes of the messages of some hours."""

    first = serializers.DateTimeField()
    until = serializers.DateTimeField()
    total = BalanceLineSerializer()
    hours = HourBalanceSerializer(many=True)
    sources = SourceBalanceSerializer(many=True, help_text="sources that lost most first; the rows have all of them")
    sources_total = serializers.IntegerField()
    gaps = GapSerializer(many=True, help_text="newest first; the rows have all of them")
    gaps_total = serializers.IntegerField()
    damaged_rows = serializers.IntegerField()


class Balance(Operation):
    """The balance now."""

    @extend_schema(operation_id="balance", responses={200: BalanceSerializer, **_FAILURES})
    def get(self, request: Request, app_id: int) -> Response:
        """Everything that was ever accepted, and where it is."""
        return Response(BalanceSerializer(delivery.balance_fields(delivery.read_balance(self.app(app_id)))).data)


class BalanceHours(Operation):
    """The outcomes of some hours."""

    @extend_schema(
        operation_id="balance_hours", parameters=[HoursQuery], responses={200: SpanSerializer, **_QUERY_FAILURES}
    )
    def get(self, request: Request, app_id: int) -> Response:
        """By hour and by source, with the messages that never arrived."""
        app, hours = self.app(app_id), self.validated_query(HoursQuery)["hours"]
        return Response(SpanSerializer(delivery.hours_fields(delivery.read_hours(app, hours))).data)


class BalanceRows(Operation):
    """The outcomes of some hours as a file."""

    @extend_schema(
        operation_id="balance_rows",
        parameters=[RowsQuery],
        responses={
            (200, "text/csv"): OpenApiResponse(
                OpenApiTypes.STR, "a header, then a row per hour and source, or per gap"
            ),
            (200, "application/x-ndjson"): OpenApiResponse(
                OpenApiTypes.STR, "an object per line: an hour and source, or a gap"
            ),
            **_QUERY_FAILURES,
        },
    )
    def get(self, request: Request, app_id: int) -> StreamingHttpResponse:
        """All rows, as CSV or JSON lines."""
        app, values = self.app(app_id), self.validated_query(RowsQuery)
        return delivery.download_response(app, values["hours"], values["content"], values["form"])
