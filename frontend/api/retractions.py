"""Retractions of an app: list, preview, make, undo, and the deletion of what one hides, for good."""

from typing import Any

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from frontend.api.base import FailureSerializer, Operation
from frontend.presenters import corrections
from rollups.services import (
    maintenance as services_maintenance,
)
from rollups.services import (
    retractions as services_retractions,
)
from rollups.services import (
    runs as services_runs,
)
from rollups.services.retractions import Listed
from spm.accounts.models import App, Role
from spm.limits import QUERY_TEXT_CHARS_MAX, RETRACT_REASON_CHARS_MAX, SOURCE_BYTES_MAX, TIME_MAX_MS

_READ = {401: FailureSerializer, 404: FailureSerializer, 503: FailureSerializer}
_WRITE = {**_READ, 400: FailureSerializer, 403: FailureSerializer, 409: FailureSerializer}


class DraftSerializer(serializers.Serializer[dict[str, Any]]):
    """What to take out: at least a source, a series, ``write_from``, or both ends of the data's own times."""

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
    """The same with a reason."""

    reason = serializers.CharField(max_length=RETRACT_REASON_CHARS_MAX)


class PreviewSerializer(serializers.Serializer[Any]):
    """What would go of what answers show now."""

    text = serializers.CharField(source="words")
    samples = serializers.IntegerField(source="preview.samples")
    restored = serializers.IntegerField(source="preview.restored", help_text="of these, how many show an older value")
    series = serializers.IntegerField(source="preview.series")
    hours = serializers.IntegerField(source="preview.hours")
    sources = serializers.ListField(source="preview.sources", child=serializers.CharField())
    metrics = serializers.ListField(source="preview.metrics", child=serializers.CharField())
    first = serializers.IntegerField(source="preview.first_ms", allow_null=True)
    last = serializers.IntegerField(source="preview.last_ms", allow_null=True)
    sealed = serializers.IntegerField(source="preview.sealed", help_text="hours whose samples are gone: they stay")
    past_alerts = serializers.IntegerField(source="alerts")
    at_least = serializers.BooleanField(source="preview.at_least", help_text="there is more than was counted")


class RecordSerializer(serializers.Serializer[Any]):
    """What it hid when it was made."""

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
    source = serializers.CharField(source="retraction.source")  # type: ignore[assignment]  # likewise
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
    """The word that makes an accident unlikely."""

    confirm = serializers.CharField(help_text="`purge` and the retraction's number: purge 7")


class PurgedSerializer(serializers.Serializer[Any]):
    """What went for good."""

    versions = serializers.IntegerField(help_text="stored samples, older versions too")
    units = serializers.IntegerField(help_text="written anew")
    size_bytes = serializers.IntegerField(source="gone.size_bytes", help_text="of the rows that held them")
    sealed = serializers.ListField(child=serializers.IntegerField(), help_text="hours it cannot reach any more")
    troubles = serializers.ListField(child=serializers.CharField(), help_text="what is left: call it again")


class Retractions(Operation):
    """The retractions of an app."""

    @extend_schema(operation_id="retractions", responses={200: RetractionSerializer(many=True), **_READ})
    def get(self, request: Request, app_id: int) -> Response:
        """All of them, newest first."""
        found = services_retractions.listed(services_runs.site(), self.app(app_id))
        return Response(RetractionSerializer(found, many=True).data)

    @extend_schema(operation_id="retract", request=RetractSerializer, responses={201: RetractionSerializer, **_WRITE})
    def post(self, request: Request, app_id: int) -> Response:
        """Take it out of every answer; for admins. It can be undone."""
        app, by = self.app(app_id, Role.ADMIN), self.actor()
        done, _ = corrections.take_out(app, corrections.read(self.asked(RetractSerializer), by.name), by)
        found = _one(app, done.retraction.number)
        return Response(RetractionSerializer(found).data, status=status.HTTP_201_CREATED)


class RetractionPreview(Operation):
    """What a retraction would take out."""

    @extend_schema(
        operation_id="retraction_preview", request=DraftSerializer, responses={200: PreviewSerializer, **_WRITE}
    )
    def post(self, request: Request, app_id: int) -> Response:
        """Count, change nothing; for editors."""
        app = self.app(app_id, Role.EDITOR)
        draft = corrections.read(self.asked(DraftSerializer), self.actor().name)
        return Response(PreviewSerializer(corrections.look(app, draft)).data)


class Undo(Operation):
    """The end of a retraction."""

    @extend_schema(operation_id="retraction_undo", request=None, responses={200: RetractionSerializer, **_WRITE})
    def post(self, request: Request, app_id: int, number: int) -> Response:
        """What it hid counts again; for admins."""
        app = self.app(app_id, Role.ADMIN)
        _one(app, number)
        services_retractions.undo(services_runs.site(), app, number, self.actor())
        return Response(RetractionSerializer(_one(app, number)).data)


class Purge(Operation):
    """The deletion, for good, of what a retraction hides."""

    @extend_schema(
        operation_id="retraction_purge", request=ConfirmSerializer, responses={200: PurgedSerializer, **_WRITE}
    )
    def post(self, request: Request, app_id: int, number: int) -> Response:
        """No undo afterwards; for an owner in person, who confirms it in words. Repeat it while ``troubles`` come."""
        app = self.app(app_id, Role.OWNER)
        _one(app, number)
        words = services_retractions.confirmation(number)
        if self.asked(ConfirmSerializer)["confirm"] != words:
            raise serializers.ValidationError({"confirm": [f"Write “{words}”."]})
        services_maintenance.check_small(app, number)
        return Response(
            PurgedSerializer(
                services_maintenance.purge_retraction(services_runs.site(), app, number, self.actor())
            ).data
        )


def _one(app: App, number: int) -> Listed:
    found = services_retractions.one(services_runs.site(), app, number)
    if found is None:
        raise Http404("There is no such retraction in this app.")
    return found
