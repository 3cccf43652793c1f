"""Lists the addresses of the interfaces, the apps a caller may read, an app's sources, metric names and labels."""

from functools import cache
from typing import Any

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework import serializers
from rest_framework.permissions import IsAuthenticated
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from frontend.api.base import FailureSerializer, Operation
from frontend.presenters import names
from ingest.accounting import completeness
from rollups.services import runs as services_runs
from spm.accounts import sources
from spm.accounts.access import apps_of
from spm.accounts.models import App, Source
from spm.accounts.tokens import Principal
from spm.clock import SystemClock
from spm.limits import BALANCE_HOURS_MAX

_clock = SystemClock()
_FAILURES = {401: FailureSerializer, 404: FailureSerializer, 503: FailureSerializer}


class AppSerializer(serializers.ModelSerializer[App]):
    """An app."""

    organisation = serializers.CharField(source="organisation.name")

    class Meta:
        model = App
        fields = ["id", "name", "organisation", "created"]


class SourceSerializer(serializers.ModelSerializer[Source]):
    """A source, and whether it reports in time."""

    state = serializers.SerializerMethodField()

    class Meta:
        model = Source
        fields = ["name", "first_seen", "last_seen", "period_ms", "state"]

    def get_state(self, source: Source) -> str:
        """Return ``up``, ``late`` or ``gone``."""
        return sources.state(int(source.last_seen.timestamp() * 1000), _clock.now_ms(), source.period_ms)


class NamesSerializer(serializers.Serializer[dict[str, Any]]):
    """Metric names."""

    metrics = serializers.ListField(child=serializers.CharField())


class MetricsQuery(serializers.Serializer[dict[str, Any]]):
    """Which names."""

    q = serializers.CharField(required=False, max_length=256, help_text="A part of the name, in any case")
    limit = serializers.IntegerField(required=False, min_value=1, help_text="Names at most; all by default")


class LabelsQuery(serializers.Serializer[dict[str, Any]]):
    """The metric whose labels are listed."""

    metric = serializers.CharField(max_length=256)


class LabelsSerializer(serializers.Serializer[dict[str, Any]]):
    """Values by label name."""

    labels = serializers.DictField(child=serializers.ListField(child=serializers.CharField()))


class Schema(Operation, SpectacularAPIView):
    """The OpenAPI schema of all interfaces. Strangers do not get it."""

    permission_classes = [IsAuthenticated]

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Answer with it in the form that was asked for; one in another language or version is made anew."""
        if not {"lang", "version"}.isdisjoint(request.GET):
            return super().get(request, *args, **kwargs)  # type: ignore[no-any-return,no-untyped-call]
        renderer: Any = request.accepted_renderer
        form: Any = type(renderer)
        kind = f"{renderer.media_type}; charset={renderer.charset}" if renderer.charset else renderer.media_type
        headers = {"Content-Disposition": f'inline; filename="{self._get_filename(request, None)}"'}  # type: ignore[no-untyped-call]
        return HttpResponse(_document(form), content_type=kind, headers=headers)

    def handle_exception(self, exc: Exception) -> Response:
        """Answer a failure as JSON, whatever form of the schema was asked for."""
        self.request.accepted_renderer, self.request.accepted_media_type = JSONRenderer(), JSONRenderer.media_type
        return super().handle_exception(exc)


@cache
def _document(renderer: type[BaseRenderer]) -> bytes:
    """Return the schema in one form. It is the same for everybody, and takes a second: a process makes it once."""
    generator: Any = SchemaGenerator()  # type: ignore[no-untyped-call]  # the library has no types
    content: Any = renderer().render(generator.get_schema(request=None, public=True))
    return bytes(content)


class Apps(Operation):
    """The apps the caller may read."""

    @extend_schema(operation_id="apps", responses={200: AppSerializer(many=True), 401: FailureSerializer})
    def get(self, request: Request) -> Response:
        """All of them."""
        if isinstance(request.auth, Principal):
            return Response(AppSerializer([self.app(None)], many=True).data)
        return Response(AppSerializer(apps_of(request.user), many=True).data)


class Sources(Operation):
    """An app's sources."""

    @extend_schema(operation_id="sources", responses={200: SourceSerializer(many=True), **_FAILURES})
    def get(self, request: Request, app_id: int) -> Response:
        """All of them, by name."""
        return Response(SourceSerializer(self.app(app_id).sources.all(), many=True).data)


class CompletenessQuery(serializers.Serializer[dict[str, Any]]):
    """How far back."""

    hours = serializers.IntegerField(min_value=1, max_value=BALANCE_HOURS_MAX, default=24)


class CompletenessSerializer(serializers.Serializer[Any]):
    """The expected and received messages of a source; hours are those in which messages were accepted."""

    source = serializers.CharField()  # type: ignore[assignment]  # a name the framework uses for itself
    state = serializers.CharField()
    period_ms = serializers.IntegerField()
    last_ms = serializers.IntegerField()
    expected = serializers.IntegerField(help_text="messages, by the announced period; at least those it numbered")
    got = serializers.IntegerField(help_text="messages that arrived, each once")
    missing = serializers.IntegerField(help_text="numbers that never arrived although later ones did")
    silent = serializers.IntegerField(help_text="messages it did not send")
    share = serializers.FloatField(allow_null=True, help_text="got / expected, 1 at most")


class Completeness(Operation):
    """How complete an app's data is."""

    @extend_schema(
        operation_id="completeness",
        parameters=[CompletenessQuery],
        responses={200: CompletenessSerializer(many=True), 400: FailureSerializer, **_FAILURES},
    )
    def get(self, request: Request, app_id: int) -> Response:
        """Each source that announced its period, those that lack most first."""
        app, hours = self.app(app_id), self.validated_query(CompletenessQuery)["hours"]
        site = services_runs.site()
        rows = completeness.source_completeness(site.store, app.pk, site.clock.now_ms(), hours)
        return Response(CompletenessSerializer(rows, many=True).data)


class Metrics(Operation):
    """An app's metric names."""

    @extend_schema(
        operation_id="metrics",
        parameters=[MetricsQuery],
        responses={200: NamesSerializer, 400: FailureSerializer, **_FAILURES},
    )
    def get(self, request: Request, app_id: int) -> Response:
        """Metrics with samples in the last week; those whose names begin with ``q`` first."""
        app, query = self.app(app_id), self.validated_query(MetricsQuery)
        return Response({"metrics": names.metrics(app.pk, _clock.now_ms(), query.get("q", ""), query.get("limit"))})


class Labels(Operation):
    """The labels of a metric."""

    @extend_schema(operation_id="labels", parameters=[LabelsQuery], responses={200: LabelsSerializer, **_FAILURES})
    def get(self, request: Request, app_id: int) -> Response:
        """The values of each label in the last week."""
        app, metric = self.app(app_id), self.validated_query(LabelsQuery)["metric"]
        return Response({"labels": names.labels(app.pk, metric, _clock.now_ms())})
