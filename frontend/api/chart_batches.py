"""``POST /api/v1/charts/batch``: all charts of a page in one request, one line of JSON for each as soon as it is ready.

A chart that the browser has already sends only its later points: the request says with ``since`` what it has, by a
digest. If late samples or a retraction have changed older points, the digest differs, and the whole chart is sent.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import product
from typing import Any

import orjson
from django.http import StreamingHttpResponse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from frontend.api.base import ColumnsRenderer, FailureSerializer, Operation
from frontend.api.retractions import DraftSerializer
from frontend.presenters import charts as presenters_charts
from frontend.presenters import retractions as presenters_retractions
from frontend.presenters.charting.overlays import Overlays, read_overlays
from frontend.presenters.charting.quality import Background, read_background
from frontend.presenters.several_queries import QUERY_LABEL, draw_queries
from frontend.queries import QuerySession, asof_of, query_session
from spm.accounts.organisations.rights import Right
from spm.clock import SystemClock
from spm.errors import QueryTimeout, SpmError
from spm.limits import CHART_SERIES_MAX, QUERY_TEXT_CHARS_MAX, TIME_MAX_MS
from spm.web.error_status import DATABASE_AWAY, status_of, text_of

CHART_BATCH_MAX = 40  # charts of one request: a long dashboard; no screen shows as many at once
CHART_QUERIES_MAX = 26  # of one chart: they are named A to Z
CHART_PIXELS_MAX = 4_000  # of the width of a chart
CHART_BATCH_S = 60  # in which queries of one request may begin: twice as long as a page waits for all its charts
_clock = SystemClock()
_LINES = "application/x-ndjson"
_Sessions = Callable[[], AbstractContextManager[QuerySession]]


class SinceSerializer(serializers.Serializer[dict[str, Any]]):
    """What the browser has of a chart, as an earlier answer said it."""

    start = serializers.IntegerField(min_value=0, max_value=TIME_MAX_MS)
    settled = serializers.IntegerField(min_value=0, max_value=TIME_MAX_MS)
    step = serializers.IntegerField(min_value=1, max_value=TIME_MAX_MS)
    digest = serializers.CharField(max_length=24)


class NamedQuerySerializer(serializers.Serializer[dict[str, Any]]):
    """One of several queries of a chart."""

    name = serializers.CharField(max_length=8)
    expr = serializers.CharField(max_length=QUERY_TEXT_CHARS_MAX)
    formula = serializers.BooleanField(
        required=False, help_text="the expression uses other queries of the chart by their names, as in `A / B`"
    )
    hidden = serializers.BooleanField(required=False, help_text="not drawn: only formulas use it")


class PanelSerializer(serializers.Serializer[dict[str, Any]]):
    """One chart, of one expression or of several queries."""

    id = serializers.CharField(max_length=40)
    expr = serializers.CharField(required=False, max_length=QUERY_TEXT_CHARS_MAX)
    queries = serializers.ListField(
        child=NamedQuerySerializer(),
        required=False,
        min_length=1,
        max_length=CHART_QUERIES_MAX,
        help_text=f"in place of expr; each series has the label {QUERY_LABEL} with the name of its query",
    )
    start = serializers.IntegerField(
        required=False, min_value=0, max_value=TIME_MAX_MS, help_text="of this chart, if it differs"
    )
    end = serializers.IntegerField(required=False, min_value=0, max_value=TIME_MAX_MS)
    top = serializers.IntegerField(required=False, min_value=1, max_value=CHART_SERIES_MAX)
    pixels = serializers.IntegerField(
        required=False, min_value=50, max_value=CHART_PIXELS_MAX, help_text="its width; at most two points for each"
    )
    cells = serializers.ChoiceField(
        [*presenters_charts.CELL_VALUES], required=False, help_text="one value per step, not its extremes"
    )
    since = SinceSerializer(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse a chart with both forms of queries, or with none."""
        if ("expr" in attrs) == ("queries" in attrs):
            raise serializers.ValidationError("A chart has either expr or queries.")
        names = [each["name"] for each in attrs.get("queries", [])]
        if len(set(names)) < len(names):
            raise serializers.ValidationError("Two queries of a chart have one name.")
        if names and all(each.get("hidden") for each in attrs["queries"]):
            raise serializers.ValidationError("All queries of a chart are hidden; at least one must be drawn.")
        return attrs


class BatchSerializer(serializers.Serializer[dict[str, Any]]):
    """The charts of a page."""

    app = serializers.IntegerField(required=False)
    start = serializers.IntegerField(min_value=0, max_value=TIME_MAX_MS, help_text="ms since 1970")
    end = serializers.IntegerField(min_value=0, max_value=TIME_MAX_MS)
    asof = serializers.CharField(required=False, max_length=40)
    draft = DraftSerializer(required=False, help_text="draw as if this retraction were in force; for editors")
    panels = serializers.ListField(child=PanelSerializer(), min_length=1, max_length=CHART_BATCH_MAX)


class LinesRenderer(BaseRenderer):
    """Names the type of the answer; the view writes it."""

    media_type = _LINES
    format = "ndjson"

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        """Write an answer that is not a stream."""
        return orjson.dumps(data, option=orjson.OPT_NON_STR_KEYS) + b"\n"


class ChartBatch(Operation):
    """The charts of a page."""

    renderer_classes = [ColumnsRenderer, LinesRenderer]

    @extend_schema(
        operation_id="chart_batch",
        request=BatchSerializer,
        responses={
            (200, _LINES): {"type": "string", "description": "a line of JSON per chart; the first one has the events"},
            **dict.fromkeys(
                product((400, 401, 403, 404, 409, 422, 429, 503), ("application/json", _LINES)), FailureSerializer
            ),
        },
    )
    def post(self, request: Request) -> StreamingHttpResponse:
        """Evaluate them in their order; a chart that fails says so in its line, and hinders no other."""
        values = self.validated_body(BatchSerializer)
        right = Right.PREVIEW_RETRACTION if "draft" in values else Right.SEE_APP
        app, now_ms = self.app(values.get("app"), right), _clock.now_ms()
        asof_ms = asof_of(values.get("asof"), now_ms)
        draft = presenters_retractions.planned(app, values["draft"]) if "draft" in values else None
        open_session = partial(query_session, app, request, asof_ms, draft)
        with open_session() as session:
            start_ms = min(each.get("start", values["start"]) for each in values["panels"])
            background = read_background(session.storage, start_ms, values["end"], now_ms, asof_ms)
        overlays = read_overlays(app, start_ms, values["end"])
        lines = _lines(open_session, values, now_ms, background, overlays)
        response = StreamingHttpResponse(lines, content_type=_LINES)
        response["Cache-Control"] = "no-store"
        return response


def _lines(
    open_session: _Sessions,
    batch: Mapping[str, Any],
    now_ms: int,
    background: Background,
    overlays: Overlays,
) -> Iterator[bytes]:
    """Write the events, then each chart; each one is admitted by itself, so that others' queries come between."""
    ends_s = _clock.monotonic() + CHART_BATCH_S
    yield _line({"events": overlays.events, "now": now_ms})
    for panel in batch["panels"]:
        query = {"start": batch["start"], "end": batch["end"], **panel}
        try:
            answer = _answer(partial(_session, open_session, ends_s), now_ms, query, background, overlays)
        except (SpmError, *DATABASE_AWAY) as error:
            answer = {"error": text_of(error), "status": status_of(error)}
        yield _line({"id": panel["id"], **answer})


def _session(open_session: _Sessions, ends_s: float) -> AbstractContextManager[QuerySession]:
    """Open the app's data for one query, unless the time of the whole request is over."""
    if _clock.monotonic() >= ends_s:
        raise QueryTimeout(f"the charts before took {CHART_BATCH_S} s, all that one request has: ask for fewer at once")
    return open_session()


def _answer(
    open_session: _Sessions,
    now_ms: int,
    query: Mapping[str, Any],
    background: Background,
    overlays: Overlays,
) -> dict[str, Any]:
    since = query.get("since")
    drawing, exprs, texts = _draw(open_session, now_ms, query)
    columns = drawing.columns.rounded()
    start_ms = int(columns.times[0]) if len(columns.times) else 0
    settled_ms = columns.settled_ms()
    state = {"start": start_ms, "step": drawing.step_ms, "settled": settled_ms, "digest": columns.digest(settled_ms)}
    answer: dict[str, Any] = {}
    if since and state | {"settled": since["settled"], "digest": columns.digest(since["settled"])} == dict(since):
        columns, answer = columns.newer_than(since["settled"]), {"after": since["settled"]}
    return {
        **columns.as_dict(),
        **answer,
        "infos": drawing.infos,
        "warnings": drawing.warnings,
        "extremes": drawing.shows_extremes,
        "quality": background.quality(drawing.provenance),
        **overlays.of_chart(exprs),
        **({"exprs": texts} if texts else {}),
        "since": state,
    }


def _draw(
    open_session: _Sessions, now_ms: int, query: Mapping[str, Any]
) -> tuple[presenters_charts.Drawing, Sequence[str], Mapping[str, str]]:
    if "queries" in query:
        several = draw_queries(open_session, now_ms, query)
        return several.drawing, several.exprs, several.texts
    with open_session() as session:
        drawing = presenters_charts.draw(session, now_ms, query)
    return drawing, [drawing.expr], {}


def _line(value: Mapping[str, Any]) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n"
