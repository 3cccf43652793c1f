"""Retractions of an app: list, preview, make and undo them, and delete for good the samples that one hides."""

from typing import Any

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from frontend.api.base import FailureSerializer, Operation
from frontend.presenters import retractions as presenter
from rollups.services import (
    maintenance as services_maintenance,
)
from rollups.services import (
    retractions as services_retractions,
)
from rollups.services import (
    runs as services_runs,
)
from rollups.services.retractions import RecordedRetraction
from spm.accounts.models import App
from spm.accounts.organisations.rights import Right
from spm.limits import QUERY_TEXT_CHARS_MAX, RETRACT_REASON_CHARS_MAX, SOURCE_BYTES_MAX, TIME_MAX_MS

_READ = {401: FailureSerializer, 404: FailureSerializer, 503: FailureSerializer}
_WRITE = {**_READ, 400: FailureSerializer, 403: FailureSerializer, 409: FailureSerializer}


class DraftSerializer(serializers.Serializer[dict[str, Any]]):
    """What to retract: at least a source, a series, ``write_from``, or both ends of the samples' own times."""

    source = serializers.CharField(  # type: ignore[assignment]  # a name the framework uses for itself
        required=False, allow_blank=True, max_length=SOURCE_BYTES_MAX
    )
    series = serializers.CharField(
        required=False, allow_blank=True, max_length=QUERY_TEXT_CHARS_MAX, help_text='PromQL: cpu_usage{host="a"}'
    )
    write_from = serializers.IntegerField(
        required=False, allow_null=True, min_value=0, max_value=TIME_MAX_MS, help_text="ms; accepted since"
    )
    write_to = serializers.IntegerField(
        required=False, allow_null=True, min_value=0, max_value=TIME_MAX_MS, help_text="ms; accepted up to; now"
    )
    data_from = serializers.IntegerField(
        required=False, allow_null=True, min_value=0, max_value=TIME_MAX_MS, help_text="ms; samples after"
    )
    data_to = serializers.IntegerField(
        required=False, allow_null=True, min_value=0, max_value=TIME_MAX_MS, help_text="ms; samples up to"
    )


class RetractSerializer(DraftSerializer):
    """A draft with a reason."""

    reason = serializers.CharField(max_length=RETRACT_REASON_CHARS_MAX)


class PreviewSerializer(serializers.Serializer[Any]):
    """What a draft would hide of present answers."""

    text = serializers.CharField(source="summary")
    samples = serializers.IntegerField(source="counts.samples")
    restored = serializers.IntegerField(source="counts.restored", help_text="how many of them will show an older value")
    series = serializers.IntegerField(source="counts.series")
    hours = serializers.IntegerField(source="counts.hours")
    sources = serializers.ListField(source="counts.sources", child=serializers.CharField())
    metrics = serializers.ListField(source="counts.metrics", child=serializers.CharField())
    first = serializers.IntegerField(source="counts.first_ms", allow_null=True)
    last = serializers.IntegerField(source="counts.last_ms", allow_null=True)
    sealed = serializers.IntegerField(
        source="counts.sealed", help_text="hours whose samples have expired: they do not change"
    )
    past_alerts = serializers.IntegerField()
    at_least = serializers.BooleanField(source="counts.at_least", help_text="there is more than was counted")


class RecordSerializer(serializers.Serializer[Any]):
    """What a retraction hid when it was made."""

    samples = serializers.IntegerField()
    restored = serializers.IntegerField()
    series = serializers.IntegerField()
    hours = serializers.IntegerField()
    past_alerts = serializers.IntegerField(source="alerts")
    sealed = serializers.IntegerField()
    at_least = serializers.BooleanField()
    undone_by = serializers.CharField()
    purged_by = serializers.CharField()


class RetractionSerializer(serializers.Serializer[Any]):
    """A retraction. Times of ranges are ms, as in the draft."""

    number = serializers.IntegerField(source="retraction.number")
    state = serializers.CharField()
    source = serializers.CharField(source="retraction.source")  # type: ignore[assignment]  # a name the framework uses
    series = serializers.CharField(source="selector")
    write_from = serializers.IntegerField(source="retraction.write_from_ms")
    write_to = serializers.IntegerField(source="retraction.write_to_ms")
    data_from = serializers.IntegerField(source="retraction.data_from_ms")
    data_to = serializers.IntegerField(source="retraction.data_to_ms")
    reason = serializers.CharField(source="retraction.reason")
    author = serializers.CharField(source="retraction.author")
    started = serializers.DateTimeField()
    ended = serializers.DateTimeField(allow_null=True)
    counted = RecordSerializer(source="record", allow_null=True)


class ConfirmSerializer(serializers.Serializer[dict[str, Any]]):
    """A phrase that prevents accidents."""

    confirm = serializers.CharField(help_text="`purge` and the retraction's number: purge 7")


class PurgedSerializer(serializers.Serializer[Any]):
    """What was deleted for good."""

    versions = serializers.IntegerField(help_text="stored samples, older versions too")
    units = serializers.IntegerField(source="hour_shards", help_text="hours of shards that were rewritten")
    size_bytes = serializers.IntegerField(source="deletions.size_bytes", help_text="of the rows that contained them")
    sealed = serializers.ListField(
        source="sealed_hours", child=serializers.IntegerField(), help_text="expired hours, which do not change"
    )
    troubles = serializers.ListField(
        source="errors", child=serializers.CharField(), help_text="what could not be deleted: call it again"
    )


class Retractions(Operation):
    """The retractions of an app."""

    @extend_schema(operation_id="retractions", responses={200: RetractionSerializer(many=True), **_READ})
    def get(self, request: Request, app_id: int) -> Response:
        """All of them, newest first."""
        retractions = services_retractions.list_retractions(services_runs.site(), self.app(app_id))
        return Response(RetractionSerializer(retractions, many=True).data)

    @extend_schema(operation_id="retract", request=RetractSerializer, responses={201: RetractionSerializer, **_WRITE})
    def post(self, request: Request, app_id: int) -> Response:
        """Hide the samples from every answer; for admins. It can be undone."""
        app, by = self.app(app_id, Right.RETRACT), self.actor()
        result, _ = presenter.retract(app, presenter.parse_draft(self.validated_body(RetractSerializer), by.name), by)
        retraction = _find_retraction(app, result.retraction.number)
        return Response(RetractionSerializer(retraction).data, status=status.HTTP_201_CREATED)


class RetractionPreview(Operation):
    """What a retraction would hide."""

    @extend_schema(
        operation_id="retraction_preview", request=DraftSerializer, responses={200: PreviewSerializer, **_WRITE}
    )
    def post(self, request: Request, app_id: int) -> Response:
        """Count without changing anything; for editors."""
        app = self.app(app_id, Right.PREVIEW_RETRACTION)
        draft = presenter.parse_draft(self.validated_body(DraftSerializer), self.actor().name)
        return Response(PreviewSerializer(presenter.preview_draft(app, draft)).data)


class Undo(Operation):
    """The end of a retraction."""

    @extend_schema(operation_id="retraction_undo", request=None, responses={200: RetractionSerializer, **_WRITE})
    def post(self, request: Request, app_id: int, number: int) -> Response:
        """Make the samples count again; for admins."""
        app = self.app(app_id, Right.UNDO_RETRACTION)
        _find_retraction(app, number)
        services_retractions.undo(services_runs.site(), app, number, self.actor())
        return Response(RetractionSerializer(_find_retraction(app, number)).data)


class Purge(Operation):
    """Deletes for good the samples that a retraction hides."""

    @extend_schema(
        operation_id="retraction_purge", request=ConfirmSerializer, responses={200: PurgedSerializer, **_WRITE}
    )
    def post(self, request: Request, app_id: int, number: int) -> Response:
        """Delete without undo; for an owner in person, who types a phrase. Repeat it while ``troubles`` come."""
        app = self.app(app_id, Right.PURGE)
        _find_retraction(app, number)
        phrase = services_retractions.confirmation_phrase(number)
        if self.validated_body(ConfirmSerializer)["confirm"] != phrase:
            raise serializers.ValidationError({"confirm": [f"Write “{phrase}”."]})
        services_maintenance.check_small(app, number)
        return Response(
            PurgedSerializer(services_maintenance.erase_retracted(services_runs.site(), app, number, self.actor())).data
        )


def _find_retraction(app: App, number: int) -> RecordedRetraction:
    retraction = services_retractions.find_retraction(services_runs.site(), app, number)
    if retraction is None:
        raise Http404("There is no such retraction in this app.")
    return retraction
