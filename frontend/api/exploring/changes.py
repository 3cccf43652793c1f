"""``GET /api/v1/apps/APP/changes``: the series of a range that differ most from the time before it."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from frontend.api.base import ColumnsRenderer, FailureSerializer, Operation
from frontend.presenters.charting.overlays import read_overlays
from frontend.presenters.exploring.changes import CHANGES_SECONDS, CHANGES_SHOWN, Change, find_changes, span_of
from frontend.queries import asof_of, query_session
from spm.clock import SystemClock
from spm.limits import QUERY_TEXT_CHARS_MAX, TIME_MAX_MS
from spm.query.promql.planning.planner import parse_selector

_clock = SystemClock()


class ChangesQuery(serializers.Serializer[dict[str, Any]]):
    """Which range."""

    start = serializers.IntegerField(min_value=0, max_value=TIME_MAX_MS, help_text="ms since 1970")
    end = serializers.IntegerField(min_value=0, max_value=TIME_MAX_MS, help_text="ms; the future is not looked at")
    match = serializers.CharField(
        required=False, max_length=QUERY_TEXT_CHARS_MAX, help_text='a selector of the series: {host="web-1"}'
    )
    asof = serializers.CharField(required=False, max_length=40, help_text="As accepted by then")


class ChangeSerializer(serializers.Serializer[Any]):
    """A series that changed."""

    metric = serializers.CharField()
    labels = serializers.DictField(child=serializers.CharField())
    kind = serializers.ChoiceField(["higher", "lower", "appeared", "stopped"])
    counter = serializers.BooleanField(help_text="before and after are its growth a second")
    before = serializers.FloatField(allow_null=True, help_text="the mean")
    after = serializers.FloatField(allow_null=True)
    score = serializers.FloatField(help_text="the shift, in units of the spread before and a tenth of the value")
    expr = serializers.CharField(help_text="PromQL that draws the series")


class HappeningSerializer(serializers.Serializer[dict[str, Any]]):
    """Something that happened meanwhile."""

    at = serializers.IntegerField(help_text="ms since 1970")
    text = serializers.CharField()


class ChangesSerializer(serializers.Serializer[dict[str, Any]]):
    """The changes, how much was looked at, and what happened meanwhile."""

    start = serializers.IntegerField(help_text="of the time before")
    middle = serializers.IntegerField(help_text="where the range begins")
    end = serializers.IntegerField()
    step = serializers.IntegerField(help_text="ms of which a mean was compared")
    metrics = serializers.IntegerField(help_text="of the app, or among those that match")
    metrics_read = serializers.IntegerField(help_text=f"within {CHANGES_SECONDS:g} seconds")
    series_read = serializers.IntegerField()
    too_large = serializers.ListField(child=serializers.CharField(), help_text="metrics with too many series")
    changes = ChangeSerializer(many=True, help_text=f"{CHANGES_SHOWN} at most, the largest first")
    events = HappeningSerializer(many=True)
    alerts = HappeningSerializer(many=True)


class WhatChanged(Operation):
    """What changed in an app."""

    renderer_classes = [ColumnsRenderer]

    @extend_schema(
        operation_id="changes",
        parameters=[ChangesQuery],
        responses={
            (200, "application/json"): ChangesSerializer,
            **dict.fromkeys(
                [(status, "application/json") for status in (400, 401, 404, 422, 429, 503)], FailureSerializer
            ),
        },
    )
    def get(self, request: Request, app_id: int) -> Response:
        """Compare a range with the time of equal length before it; what was not looked at is counted."""
        app, values, now_ms = self.app(app_id), self.validated_query(ChangesQuery), _clock.now_ms()
        span = span_of(values["start"], min(values["end"], now_ms))
        among = parse_selector(values["match"]) if "match" in values else ()
        with query_session(app, request, asof_of(values.get("asof"), now_ms)) as session:
            changes = find_changes(session, span, clock=_clock, among=among)
        overlays = read_overlays(app, span.middle_ms, span.end_ms)
        return Response(
            {
                "start": span.start_ms,
                "middle": span.middle_ms,
                "end": span.end_ms,
                "step": span.step_ms,
                "metrics": changes.metrics,
                "metrics_read": changes.metrics_read,
                "series_read": changes.series_read,
                "too_large": changes.too_large,
                "changes": [_row(each) for each in changes.rows],
                "events": overlays.events,
                "alerts": [{"at": each.start_ms, "text": each.rule.name} for each in overlays.episodes],
            }
        )


def _row(change: Change) -> dict[str, Any]:
    return {
        "metric": change.metric,
        "labels": change.labels,
        "kind": change.kind,
        "counter": change.is_counter,
        "before": change.before,
        "after": change.after,
        "score": change.score,
        "expr": change.expr,
    }
