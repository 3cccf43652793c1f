"""``GET /api/v1/percentiles``: percentiles of all samples of groups of series, as columns ready to draw."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from frontend.api.charts import ChartOperation, SeriesSerializer, chart_schema
from frontend.presenters import percentiles
from spm.limits import QUERY_QUANTILES_MAX, QUERY_TEXT_CHARS_MAX, TIME_MAX_MS


class CommaListField(serializers.ListField):
    """Values separated by commas."""

    def to_internal_value(self, data: Any) -> list[Any]:
        """Return the values."""
        texts = [text.strip() for part in data for text in str(part).split(",")]
        try:
            return super().to_internal_value([text for text in texts if text])
        except serializers.ValidationError as wrong:
            details = wrong.detail.values() if isinstance(wrong.detail, dict) else [wrong.detail]
            raise serializers.ValidationError(
                next(iter(details))
            ) from wrong  # without positions: JSON has no integer keys


class PercentilesQuery(serializers.Serializer[dict[str, Any]]):
    """What to draw."""

    app = serializers.IntegerField(required=False, help_text="The app's number; by default a token's own app")
    match = serializers.CharField(max_length=QUERY_TEXT_CHARS_MAX, help_text="A selector, as in PromQL")
    q = CommaListField(
        child=serializers.FloatField(min_value=0, max_value=1),
        min_length=1,
        max_length=QUERY_QUANTILES_MAX,
        help_text="From 0 to 1, separated by commas",
    )
    by = CommaListField(
        child=serializers.CharField(max_length=256),
        required=False,
        max_length=32,
        help_text="Labels that define the groups, separated by commas; without them all series are one group",
    )
    start = serializers.IntegerField(required=False, min_value=0, max_value=TIME_MAX_MS, help_text="ms since 1970")
    end = serializers.IntegerField(required=False, min_value=0, max_value=TIME_MAX_MS, help_text="ms; now by default")
    step = serializers.IntegerField(
        required=False,
        min_value=1_000,
        max_value=TIME_MAX_MS,
        help_text="ms that each value looks back; a round one by default",
    )
    asof = serializers.CharField(
        required=False, max_length=40, help_text="As accepted by then: seconds since 1970, or RFC 3339"
    )
    explain = serializers.BooleanField(required=False, help_text="Add the full provenance of the answer")


class PercentilesSerializer(serializers.Serializer[dict[str, Any]]):
    """Times in ms, and for each group and q (its label ``quantile``) a value or null per time, within 1 %."""

    times = serializers.ListField(child=serializers.IntegerField())
    step = serializers.IntegerField(help_text="ms between two times; each value is over the step before its time")
    series = SeriesSerializer(many=True)
    infos = serializers.ListField(child=serializers.CharField(), help_text="The provenance of the answer, in short")
    warnings = serializers.ListField(child=serializers.CharField(), help_text="What is missing in it")
    explain = serializers.DictField(required=False, help_text="The full provenance, if it was requested")


class PercentilesView(ChartOperation):
    """Percentiles of groups."""

    @chart_schema("percentiles", PercentilesQuery, PercentilesSerializer)
    def get(self, request: Request) -> Response:
        """Read the percentiles."""
        return self.draw(request, PercentilesQuery, percentiles.chart)
