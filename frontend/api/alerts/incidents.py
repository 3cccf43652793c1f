"""The incidents of an organisation in a range of time: alerts that fired, who took them, and how long that took."""

from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from alerts.history import limits
from alerts.history.incidents import BY_RULE, IncidentQuery, read_incidents
from alerts.models import Severity
from alerts.telling.limits import MATCHERS_CHARS_MAX
from frontend.api.accounts.organisations import OrganisationOperation
from frontend.api.alerts.acknowledgements import AcknowledgementSerializer
from frontend.api.base import ColumnsRenderer, FailureSerializer
from spm.accounts.organisations.rights import Right
from spm.clock import SystemClock
from spm.limits import HOUR_MS, TIME_MAX_MS

_clock = SystemClock()
_RANGE_MS = 7 * 24 * HOUR_MS
_ALERTS_MAX = 500
_TIME: dict[str, Any] = {"required": False, "min_value": 0, "max_value": TIME_MAX_MS}


class IncidentSerializer(serializers.Serializer[Any]):
    """An alert that fired."""

    id = serializers.IntegerField(source="episode.pk")
    app = serializers.IntegerField(source="episode.rule.app_id")
    rule = serializers.IntegerField(source="episode.rule_id")
    name = serializers.CharField(source="episode.rule.name")
    severity = serializers.CharField(source="episode.severity")
    labels = serializers.DictField(child=serializers.CharField(), help_text="as policies and silences match them")
    start_ms = serializers.IntegerField(source="episode.start_ms")
    end_ms = serializers.IntegerField(source="episode.end_ms", allow_null=True, help_text="null: it goes on")
    end_reason = serializers.CharField(source="episode.end_reason", allow_blank=True)
    acknowledged = AcknowledgementSerializer(source="taken", allow_null=True, help_text="the last one")
    acknowledged_after_ms = serializers.IntegerField(allow_null=True, help_text="from when it was known; the first one")
    lasted_ms = serializers.IntegerField(allow_null=True)


class LaneSerializer(serializers.Serializer[Any]):
    """The alerts of one rule, or with one value of the label: the newest."""

    name = serializers.CharField(allow_blank=True)
    rule = serializers.IntegerField(help_text="0 for a value of a label")
    count = serializers.SerializerMethodField()
    open = serializers.IntegerField()
    alerts = serializers.SerializerMethodField(help_text=f"at most {_ALERTS_MAX}")

    def get_count(self, lane: Any) -> int:
        """How many there are."""
        return len(lane.incidents)

    @extend_schema_field(IncidentSerializer(many=True))
    def get_alerts(self, lane: Any) -> list[dict[str, Any]]:
        """The newest."""
        return list(IncidentSerializer(lane.incidents[:_ALERTS_MAX], many=True).data)


class IncidentsSerializer(serializers.Serializer[Any]):
    """Incidents in lanes: those with open alerts first, then by the newest."""

    lanes = LaneSerializer(many=True)
    count = serializers.SerializerMethodField()
    open = serializers.IntegerField()
    acknowledged = serializers.IntegerField()
    mean_to_acknowledge_ms = serializers.IntegerField(allow_null=True)
    mean_to_resolve_ms = serializers.IntegerField(allow_null=True)
    is_cut = serializers.BooleanField(help_text=f"there are more than {limits.INCIDENTS_MAX}: only the newest count")

    def get_count(self, incidents: Any) -> int:
        """How many there are."""
        return len(incidents.all)


class IncidentsQuery(serializers.Serializer[Any]):
    """Which incidents, and what makes the lanes."""

    from_ms = serializers.IntegerField(**_TIME, help_text="7 days before the end")
    to_ms = serializers.IntegerField(**_TIME, help_text="now")
    app = serializers.IntegerField(required=False, min_value=0, max_value=2**62)
    severity = serializers.ChoiceField(choices=Severity.choices, required=False)
    matchers = serializers.CharField(required=False, allow_blank=True, max_length=MATCHERS_CHARS_MAX)
    by = serializers.CharField(required=False, max_length=200, help_text="a label whose values make lanes; else rules")


class IncidentList(OrganisationOperation):
    """The incidents of an organisation."""

    renderer_classes = [ColumnsRenderer]

    @extend_schema(
        operation_id="incidents",
        parameters=[IncidentsQuery],
        responses={200: IncidentsSerializer, **dict.fromkeys((400, 401, 403, 404), FailureSerializer)},
    )
    def get(self, request: Request, organisation_id: int) -> Response:
        """What fired at any time of [from, to), without rules that could not be judged."""
        own, query = self.membership(organisation_id, Right.SEE_APP), self.validated_query(IncidentsQuery)
        to_ms = query.pop("to_ms", _clock.now_ms())
        from_ms = query.pop("from_ms", max(to_ms - _RANGE_MS, 0))
        query["label"] = query.pop("by", BY_RULE)
        incidents = read_incidents(IncidentQuery(own.organisation.pk, from_ms, to_ms, **query))
        return Response(IncidentsSerializer(incidents).data)
