"""``/api/v1/query-builder``: PromQL as the parts of the query builder, and parts as PromQL."""

from dataclasses import asdict
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from frontend.api.base import FailureSerializer, Operation
from frontend.presenters.exploring.query_builder import (
    AGGREGATIONS,
    FUNCTIONS,
    BuilderQuery,
    NotShown,
    read_query,
    write_query,
)
from spm.limits import QUERY_TEXT_CHARS_MAX
from spm.query.request.batches import Matcher

_FILTERS_MAX = _LABELS_MAX = 64  # more than a series has labels
_NAME_CHARS_MAX = 1_000
_FAILURES = {400: FailureSerializer, 401: FailureSerializer}


class TextSerializer(serializers.Serializer[dict[str, Any]]):
    """An expression."""

    expr = serializers.CharField(
        max_length=QUERY_TEXT_CHARS_MAX, trim_whitespace=False, help_text="PromQL, with variables such as `$window`"
    )


class FilterSerializer(serializers.Serializer[dict[str, Any]]):
    """A condition on a label."""

    name = serializers.CharField(max_length=_NAME_CHARS_MAX, trim_whitespace=False)
    op = serializers.ChoiceField(["=", "!=", "=~", "!~"])
    value = serializers.CharField(max_length=_NAME_CHARS_MAX, allow_blank=True, trim_whitespace=False)


class BuilderSerializer(serializers.Serializer[dict[str, Any]]):
    """The parts of a query."""

    metric = serializers.CharField(max_length=_NAME_CHARS_MAX, trim_whitespace=False)
    filters = serializers.ListField(child=FilterSerializer(), required=False, max_length=_FILTERS_MAX)
    function = serializers.ChoiceField(["", *FUNCTIONS], required=False, help_text="empty: the newest sample")
    window = serializers.CharField(
        required=False, allow_blank=True, max_length=40, help_text="that the function looks back: 5m, or a variable"
    )
    number = serializers.FloatField(required=False, allow_null=True, help_text="of quantile_over_time")
    aggregation = serializers.ChoiceField(["", *AGGREGATIONS], required=False)
    parameter = serializers.FloatField(required=False, allow_null=True, help_text="of quantile, topk and bottomk")
    grouping = serializers.ChoiceField(["", "by", "without"], required=False)
    labels = serializers.ListField(
        child=serializers.CharField(max_length=_NAME_CHARS_MAX, trim_whitespace=False),
        required=False,
        max_length=_LABELS_MAX,
    )
    percentile = serializers.FloatField(required=False, allow_null=True, help_text="of the buckets of a histogram")


class ReadingSerializer(serializers.Serializer[dict[str, Any]]):
    """A text as the builder shows it, or why it cannot."""

    builder = BuilderSerializer(allow_null=True)
    reason = serializers.CharField(help_text="empty if the builder shows the text")


class QueryBuilder(Operation):
    """Texts as parts, and parts as texts: no app is asked for anything."""

    @extend_schema(
        operation_id="query_builder_read",
        parameters=[TextSerializer, OpenApiParameter("Authorization", str, OpenApiParameter.HEADER, exclude=True)],
        responses={200: ReadingSerializer, **_FAILURES},
    )
    def get(self, request: Request) -> Response:
        """Read a text; 400 if it is no PromQL."""
        text = self.validated_query(TextSerializer)["expr"]
        try:
            query = read_query(text)
        except NotShown as reason:
            return Response({"builder": None, "reason": f"The builder cannot show this: {reason}."})
        return Response({"builder": asdict(query), "reason": ""})

    @extend_schema(
        operation_id="query_builder_write",
        request=BuilderSerializer,
        responses={200: TextSerializer, **_FAILURES},
    )
    def post(self, request: Request) -> Response:
        """Write the text; 400 for parts that do not belong together."""
        values = self.validated_body(BuilderSerializer)
        filters = [Matcher(each["name"], each["op"], each["value"]) for each in values.pop("filters", [])]
        return Response({"expr": write_query(BuilderQuery(filters=filters, **values))})
