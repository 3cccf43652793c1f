"""The open alerts of an organisation: where they fire, since when, who has taken them, and who was told or why not."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from alerts.models import Aspect, Severity
from alerts.models.telling import LastWord
from alerts.notify.registry import shown
from alerts.open_alerts import AlertFilter, open_alerts
from alerts.telling.limits import MATCHERS_CHARS_MAX
from frontend.api.accounts.organisations import OrganisationOperation
from frontend.api.alerts.acknowledgements import AcknowledgementSerializer
from frontend.api.alerts.cursor_pages import NewestFirstQuery
from frontend.api.base import ColumnsRenderer, FailureSerializer
from spm.accounts.organisations.rights import Right
from spm.clock import SystemClock

_clock = SystemClock()
_NUMBER: dict[str, Any] = {"required": False, "min_value": 0, "max_value": 2**62}


class LastWordSerializer(serializers.ModelSerializer[LastWord]):
    """What one receiver was told of an alert, and why it gets what it gets."""

    receiver = serializers.IntegerField(source="receiver_id")
    target = serializers.SerializerMethodField(help_text="the receiver, without what is secret of it")
    level = serializers.CharField(help_text="nothing, open, ended or void: what it believes")

    class Meta:
        model = LastWord
        fields = ["receiver", "target", "level", "is_doubtful", "reason"]

    def get_target(self, word: LastWord) -> str:
        """Return the receiver as pages show it."""
        return shown(word.receiver.kind, word.receiver.target)


class OpenAlertSerializer(serializers.Serializer[Any]):
    """An open alert."""

    id = serializers.IntegerField(source="episode.pk")
    app = serializers.IntegerField(source="episode.rule.app_id")
    rule = serializers.IntegerField(source="episode.rule_id")
    name = serializers.CharField(source="episode.rule.name")
    aspect = serializers.CharField(source="episode.aspect")
    severity = serializers.CharField(source="episode.severity")
    labels = serializers.DictField(child=serializers.CharField(), help_text="as policies and silences match them")
    start_ms = serializers.IntegerField(source="episode.start_ms")
    value = serializers.FloatField(
        source="episode.last_value", allow_null=True, help_text="null for NaN and the infinities, too"
    )
    acknowledged = AcknowledgementSerializer(source="taken", allow_null=True)
    last_words = LastWordSerializer(source="words", many=True)


class OpenAlertPageSerializer(serializers.Serializer[Any]):
    """Some open alerts; ``next`` is the cursor of the following page, null on the last one."""

    alerts = OpenAlertSerializer(many=True)
    next = serializers.IntegerField(allow_null=True)


class OpenAlertQuery(NewestFirstQuery):
    """Which open alerts to list."""

    app = serializers.IntegerField(**_NUMBER)
    rule = serializers.IntegerField(**_NUMBER)
    severity = serializers.ChoiceField(choices=Severity.choices, required=False)
    aspect = serializers.ChoiceField(choices=[each.value for each in Aspect], required=False)
    acknowledged = serializers.BooleanField(required=False, default=None, allow_null=True)
    matchers = serializers.CharField(
        required=False, default="", allow_blank=True, max_length=MATCHERS_CHARS_MAX, help_text='such as host="web-1"'
    )


class OpenAlerts(OrganisationOperation):
    """The open alerts of an organisation."""

    renderer_classes = [ColumnsRenderer]

    @extend_schema(
        operation_id="alerts",
        parameters=[OpenAlertQuery],
        responses={200: OpenAlertPageSerializer, **dict.fromkeys((400, 401, 403, 404), FailureSerializer)},
    )
    def get(self, request: Request, organisation_id: int) -> Response:
        """Newest first. A page may hold fewer than ``limit``, while ``next`` goes on."""
        own, query = self.membership(organisation_id, Right.SEE_APP), self.validated_query(OpenAlertQuery)
        page = {"cursor": query.pop("cursor"), "limit": query.pop("limit"), "now_ms": _clock.now_ms()}
        alerts, cursor = open_alerts(own.organisation.pk, AlertFilter(**query), **page)
        return Response(OpenAlertPageSerializer({"alerts": alerts, "next": cursor}).data)
