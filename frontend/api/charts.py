"""``GET /api/v1/charts``: an expression over a range, as columns ready to draw."""

from collections.abc import Callable, Mapping
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from frontend.api.base import ColumnsRenderer, FailureSerializer, Operation
from frontend.presenters import charts as presenters_charts
from frontend.prometheus.explanations import explanation_with_corrections
from frontend.queries import QuerySession, asof_of, query_session
from spm.clock import SystemClock
from spm.limits import CHART_SERIES_MAX, QUERY_TEXT_CHARS_MAX, TIME_MAX_MS
from spm.query.request.provenance import Provenance

_clock = SystemClock()


class ChartQuery(serializers.Serializer[dict[str, Any]]):
    """What to draw."""

    app = serializers.IntegerField(required=False, help_text="The app's number; by default a token's own app")
    expr = serializers.CharField(
        max_length=QUERY_TEXT_CHARS_MAX,
        help_text="PromQL; a duration may be `$__rate_interval`, `$__interval`, `$__range` or `$window`",
    )
    start = serializers.IntegerField(required=False, min_value=0, max_value=TIME_MAX_MS, help_text="ms since 1970")
    end = serializers.IntegerField(required=False, min_value=0, max_value=TIME_MAX_MS, help_text="ms; now by default")
    step = serializers.IntegerField(
        required=False, min_value=1_000, max_value=TIME_MAX_MS, help_text="ms; a round one by default"
    )
    top = serializers.IntegerField(
        required=False, min_value=1, max_value=CHART_SERIES_MAX, help_text="The highest series; the others as a band"
    )
    asof = serializers.CharField(
        required=False, max_length=40, help_text="As accepted by then: seconds since 1970, or RFC 3339"
    )
    explain = serializers.BooleanField(required=False, help_text="Add the full provenance of the answer")


class SeriesSerializer(serializers.Serializer[dict[str, Any]]):
    """One line of the chart."""

    labels = serializers.DictField(child=serializers.CharField())
    values = serializers.ListField(child=serializers.FloatField(allow_null=True))


class BandSerializer(serializers.Serializer[dict[str, Any]]):
    """The range of the series that are not returned, at each time."""

    count = serializers.IntegerField(help_text="how many series")
    low = serializers.ListField(child=serializers.FloatField(allow_null=True))
    high = serializers.ListField(child=serializers.FloatField(allow_null=True))


class ChartSerializer(serializers.Serializer[dict[str, Any]]):
    """Times in ms, and for each series a value or null per time."""

    times = serializers.ListField(child=serializers.IntegerField())
    step = serializers.IntegerField(help_text="ms between two times")
    series = SeriesSerializer(many=True)
    rest = BandSerializer(required=False, help_text="Of all but the highest series, if there are that many")
    infos = serializers.ListField(child=serializers.CharField(), help_text="The provenance of the answer, in short")
    warnings = serializers.ListField(child=serializers.CharField(), help_text="What is missing in it")
    explain = serializers.DictField(required=False, help_text="The full provenance, if it was requested")


def chart_schema(
    operation_id: str, query: type[serializers.Serializer[Any]], answer: type[serializers.Serializer[Any]]
) -> Callable[..., Any]:
    """Describe the ``get`` of a ``ChartOperation``: its parameters and all its answers."""
    authorization = OpenApiParameter("Authorization", str, OpenApiParameter.HEADER, exclude=True)
    responses: dict[int | tuple[int, str], type[serializers.Serializer[Any]]] = {
        200: answer,
        (400, "application/json"): FailureSerializer,
        **dict.fromkeys((401, 404, 422, 429, 503), FailureSerializer),
    }
    return extend_schema(operation_id=operation_id, parameters=[query, authorization], responses=responses)


class ChartOperation(Operation):
    """An operation whose answer is columns over a range, and on request their full provenance."""

    renderer_classes = [ColumnsRenderer]

    def draw(
        self,
        request: Request,
        form: type[serializers.Serializer[Any]],
        evaluate: Callable[[QuerySession, int, Mapping[str, Any]], tuple[dict[str, Any], Provenance]],
    ) -> Response:
        """Read the parameters by a form, evaluate them within a query's admission, and answer."""
        values = self.validated_query(form)
        app, now_ms = self.app(values.get("app")), _clock.now_ms()
        with query_session(app, request, asof_of(values.get("asof"), now_ms)) as session:
            answer, provenance = evaluate(session, now_ms, values)
            if values.get("explain"):
                answer["explain"] = explanation_with_corrections(session.storage, app.pk, provenance, now_ms)
        return Response(answer)


class Charts(ChartOperation):
    """The chart of an expression."""

    @chart_schema("chart", ChartQuery, ChartSerializer)
    def get(self, request: Request) -> Response:
        """Evaluate the expression."""
        return self.draw(request, ChartQuery, presenters_charts.chart)
