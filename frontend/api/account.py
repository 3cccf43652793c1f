"""The account of an app: where its samples are now, what became of those of the last hours, and which never came."""

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

_READ = {401: FailureSerializer, 404: FailureSerializer, 503: FailureSerializer}
_ASKED = {**_READ, 400: FailureSerializer}


class PlacesSerializer(serializers.Serializer[Any]):
    """Where they are: ``accepted`` is the sum of all the others, or the account does not add up."""

    accepted = serializers.IntegerField()
    stored = serializers.IntegerField()
    late = serializers.IntegerField(help_text="came for an hour past its retention; in no answer")
    rejected = serializers.IntegerField(help_text="among samples: lines that could not be read")
    dead = serializers.IntegerField(help_text="could not be stored; kept as dead letters")
    queued = serializers.IntegerField(help_text="durable, and waiting to be written")
    in_flight = serializers.IntegerField(help_text="in the hands of a server, not acknowledged yet")
    unconfirmed = serializers.IntegerField(help_text="in the hands of a server that ended")


class FindingSerializer(serializers.Serializer[Any]):
    """A server process whose part does not add up: what is missing, or (below zero) too much."""

    process = serializers.IntegerField()
    messages = serializers.IntegerField()
    samples = serializers.IntegerField()


class AccountSerializer(serializers.Serializer[Any]):
    """The account since the app began."""

    at = serializers.DateTimeField()
    adds_up = serializers.BooleanField()
    lag_ms = serializers.IntegerField(help_text="age of the oldest announcement that is not settled")
    messages = PlacesSerializer()
    samples = PlacesSerializer()
    findings = FindingSerializer(many=True)
    damaged_rows = serializers.IntegerField(help_text="that cannot be read: what they tell of seems to wait")
    unread_processes = serializers.ListField(
        child=serializers.IntegerField(), help_text="whose counts cannot be read: they are in none of the numbers"
    )


class HoursQuery(serializers.Serializer[dict[str, Any]]):
    """How far back."""

    hours = serializers.IntegerField(
        required=False,
        default=24,
        min_value=1,
        max_value=limits.ACCOUNT_HOURS_MAX,
        help_text="hours, the one under way included",
    )


class RowsQuery(HoursQuery):
    """What of it, and how it is written."""

    content = serializers.ChoiceField(choices=sorted(delivery.CONTENTS), required=False, default="hours")
    form = serializers.ChoiceField(choices=sorted(delivery.FORMS), required=False, default="csv")


class LineSerializer(serializers.Serializer[Any]):
    """Messages and samples that were settled."""

    messages = serializers.IntegerField()
    samples = serializers.IntegerField(source="accepted")
    stored = serializers.IntegerField()
    late = serializers.IntegerField()
    rejected = serializers.IntegerField()
    dead = serializers.IntegerField()


class HourSerializer(LineSerializer):
    """Of one hour of acceptance."""

    hour = serializers.SerializerMethodField()

    def get_hour(self, line: Any) -> str:
        """When it began, RFC 3339."""
        return delivery.rfc3339(line.start_ms)


class SourceLineSerializer(LineSerializer):
    """Of one source."""

    source = serializers.CharField()  # type: ignore[assignment]  # the base class has an attribute of this name


class GapSerializer(serializers.Serializer[Any]):
    """Messages that a source numbered and that never came."""

    source = serializers.CharField()  # type: ignore[assignment]
    spool = serializers.CharField(help_text="names one unbroken count of the source")
    first = serializers.IntegerField()
    last = serializers.IntegerField()
    messages = serializers.IntegerField()
    after = serializers.DateTimeField(help_text="when the message before them was accepted")
    before = serializers.DateTimeField(help_text="and the one behind them")


class SpanSerializer(serializers.Serializer[Any]):
    """What became of the messages of some hours."""

    first = serializers.DateTimeField()
    until = serializers.DateTimeField()
    total = LineSerializer()
    hours = HourSerializer(many=True)
    sources = SourceLineSerializer(many=True, help_text="those that lost most first; the rows have all of them")
    sources_total = serializers.IntegerField()
    gaps = GapSerializer(many=True, help_text="the newest first; the rows have all of them")
    gaps_total = serializers.IntegerField()
    damaged_rows = serializers.IntegerField()


class Account(Operation):
    """The account now."""

    @extend_schema(operation_id="account", responses={200: AccountSerializer, **_READ})
    def get(self, request: Request, app_id: int) -> Response:
        """Everything that was ever accepted, and where it is."""
        return Response(AccountSerializer(delivery.plain(delivery.now(self.app(app_id)))).data)


class AccountHours(Operation):
    """The account of some hours."""

    @extend_schema(operation_id="account_hours", parameters=[HoursQuery], responses={200: SpanSerializer, **_ASKED})
    def get(self, request: Request, app_id: int) -> Response:
        """By hour and by source, with what never came."""
        app, query = self.app(app_id), HoursQuery(data=request.query_params)
        query.is_valid(raise_exception=True)
        return Response(SpanSerializer(delivery.plain_span(delivery.span(app, query.validated_data["hours"]))).data)


class AccountRows(Operation):
    """The same as a file."""

    @extend_schema(
        operation_id="account_rows",
        parameters=[RowsQuery],
        responses={
            (200, "text/csv"): OpenApiResponse(OpenApiTypes.STR, "a head, then a row per hour and source, or per gap"),
            (200, "application/x-ndjson"): OpenApiResponse(OpenApiTypes.STR, "the same, an object per line"),
            **_ASKED,
        },
    )
    def get(self, request: Request, app_id: int) -> StreamingHttpResponse:
        """All rows, as CSV or JSON lines."""
        app, query = self.app(app_id), RowsQuery(data=request.query_params)
        query.is_valid(raise_exception=True)
        asked = query.validated_data
        return delivery.file(app, asked["hours"], asked["content"], asked["form"])
