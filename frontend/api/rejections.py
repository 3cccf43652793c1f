"""What an app's senders sent that was not taken: the newest, and how often each reason; and the app's quotas."""

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
    """Which and how many."""

    reason = serializers.CharField(max_length=300, required=False, help_text="only these")
    limit = serializers.IntegerField(min_value=1, max_value=REJECTIONS_KEPT_MAX, default=100)


class RejectionSerializer(serializers.Serializer[Any]):
    """One of them."""

    time = serializers.SerializerMethodField()
    source = serializers.CharField()  # type: ignore[assignment]  # the base class has an attribute of this name
    way = serializers.CharField(help_text="the protocol, or who speaks it")
    line = serializers.IntegerField(help_text="its number in its body, from 1; 0: the body, or a series")
    reason = serializers.CharField()
    example = serializers.CharField()

    def get_time(self, line: RejectedLine) -> str:
        """When it was refused, RFC 3339."""
        return delivery.rfc3339(line.time_ms)


class ReasonSerializer(serializers.Serializer[Any]):
    """How often a reason stands among the kept ones."""

    reason = serializers.CharField()
    count = serializers.IntegerField()
    sources = serializers.IntegerField()
    last = serializers.SerializerMethodField()
    example = serializers.CharField()

    def get_last(self, count: rejections.Count) -> str:
        """The last time, RFC 3339."""
        return delivery.rfc3339(count.last_ms)


class QuotaSerializer(serializers.Serializer[Any]):
    """What an app may send."""

    series = serializers.IntegerField(allow_null=True, help_text="that it has; null: not counted yet")
    series_max = serializers.IntegerField()
    samples_per_s = serializers.IntegerField()


class RejectionsSerializer(serializers.Serializer[Any]):
    """All of it."""

    kept = serializers.IntegerField(help_text="how many are kept at most")
    quota = QuotaSerializer()
    reasons = ReasonSerializer(many=True)
    rejections = RejectionSerializer(many=True, help_text="the newest first")


class Rejections(Operation):
    """What was refused last."""

    @extend_schema(
        operation_id="rejections",
        parameters=[RejectionsQuery],
        responses={200: RejectionsSerializer, 400: FailureSerializer, **_FAILURES},
    )
    def get(self, request: Request, app_id: int) -> Response:
        """The newest, the reasons, the quotas."""
        app, query = self.app(app_id), RejectionsQuery(data=request.query_params)
        query.is_valid(raise_exception=True)
        asked = query.validated_data
        found = RejectedLine.objects.filter(app=app, **({"reason": asked["reason"]} if "reason" in asked else {}))
        told = {
            "kept": REJECTIONS_KEPT_MAX,
            "quota": delivery.quota_of(app),
            "reasons": rejections.by_reason(app.pk),
            "rejections": found[: asked["limit"]],
        }
        return Response(RejectionsSerializer(told).data)
