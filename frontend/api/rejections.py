"""Lists the rejected lines of an app's senders: the newest, the count of each reason, and the app's quotas."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from frontend.api.base import FailureSerializer, Operation
from frontend.presenters import delivery
from ingest.accept import rejections
from ingest.models import RejectedLine
from spm.limits import REJECTIONS_KEPT_MAX

_FAILURES = {401: FailureSerializer, 404: FailureSerializer}


class RejectionsQuery(serializers.Serializer[dict[str, Any]]):
    """Which rejections, and how many."""

    reason = serializers.CharField(max_length=300, required=False, help_text="only rejections with this reason")
    limit = serializers.IntegerField(min_value=1, max_value=REJECTIONS_KEPT_MAX, default=100)


class RejectionSerializer(serializers.Serializer[Any]):
    """One rejected line."""

    time = serializers.SerializerMethodField()
    source = serializers.CharField()  # type: ignore[assignment]  # the base class has an attribute of this name
    way = serializers.CharField(help_text="the protocol, or the sending program")
    line = serializers.IntegerField(help_text="its number in the body, from 1; 0: the whole body, or a series")
    reason = serializers.CharField()
    example = serializers.CharField()

    def get_time(self, line: RejectedLine) -> str:
        """Return when it was rejected, as RFC 3339."""
        return delivery.rfc3339(line.time_ms)


class ReasonSerializer(serializers.Serializer[Any]):
    """How often a reason occurs among the stored rejections."""

    reason = serializers.CharField()
    count = serializers.IntegerField()
    sources = serializers.IntegerField()
    last = serializers.SerializerMethodField()
    example = serializers.CharField()

    def get_last(self, count: rejections.ReasonCount) -> str:
        """Return the last time, as RFC 3339."""
        return delivery.rfc3339(count.last_ms)


class QuotaSerializer(serializers.Serializer[Any]):
    """What an app may send."""

    series = serializers.IntegerField(allow_null=True, help_text="how many it has; null: not counted yet")
    series_max = serializers.IntegerField()
    samples_per_s = serializers.IntegerField(allow_null=True)


class RejectionsSerializer(serializers.Serializer[Any]):
    """The newest rejections, the reasons, and the quotas."""

    stored_max = serializers.IntegerField(help_text="how many rejections are stored at most")
    quota = QuotaSerializer()
    reasons = ReasonSerializer(many=True)
    rejections = RejectionSerializer(many=True, help_text="newest first")


class Rejections(Operation):
    """The latest rejections."""

    @extend_schema(
        operation_id="rejections",
        parameters=[RejectionsQuery],
        responses={200: RejectionsSerializer, 400: FailureSerializer, **_FAILURES},
    )
    def get(self, request: Request, app_id: int) -> Response:
        """The newest rejections, the reasons, and the quotas."""
        app, values = self.app(app_id), self.validated_query(RejectionsQuery)
        lines = RejectedLine.objects.filter(app=app, **({"reason": values["reason"]} if "reason" in values else {}))
        answer = {
            "stored_max": REJECTIONS_KEPT_MAX,
            "quota": delivery.quota_of(app),
            "reasons": rejections.by_reason(app.pk),
            "rejections": lines[: values["limit"]],
        }
        return Response(
            {**RejectionsSerializer(answer).data, "kept": REJECTIONS_KEPT_MAX}
        )  # the old name of stored_max
