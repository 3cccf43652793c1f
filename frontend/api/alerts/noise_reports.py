"""Noise reports of an organisation: which rules notified most in a week, and what a longer ``for`` had saved."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from alerts.models.noise import NoiseReport, NoisyRule
from alerts.noise.counts import count_last_week
from frontend.api.accounts.organisations import OrganisationOperation
from frontend.api.alerts.backtests import ForEffectSerializer
from frontend.api.alerts.cursor_pages import NewestFirstQuery, newest_page
from frontend.api.base import FailureSerializer
from spm.accounts.organisations.rights import Right
from spm.clock import SystemClock

_clock = SystemClock()
_READ = {401: FailureSerializer, 403: FailureSerializer, 404: FailureSerializer}


class NoisyRuleSerializer(serializers.ModelSerializer[NoisyRule]):
    """A rule with its numbers, and what a backtest of the week says of it with a longer ``for``."""

    rule = serializers.IntegerField(source="rule_id")
    name = serializers.CharField(source="rule.name")
    app = serializers.IntegerField(source="rule.app_id")
    tried_notifications = serializers.IntegerField(
        allow_null=True, help_text="to one receiver, by the backtest with the rule's own for; null: it was not tried"
    )
    untried = serializers.CharField(help_text="why not")
    effects = ForEffectSerializer(many=True, help_text="with longer ones")
    saving = ForEffectSerializer(
        allow_null=True, help_text="the shortest that saves half of the notifications, else that which saves most"
    )

    class Meta:
        model = NoisyRule
        fields = [
            "rule",
            "name",
            "app",
            "notifications",
            "alerts",
            "unattended",
            "flaps",
            "for_ms",
            "tried_notifications",
            "untried",
            "effects",
            "saving",
        ]


class NoiseReportSerializer(serializers.ModelSerializer[NoiseReport]):
    """The numbers of a week."""

    id = serializers.IntegerField(allow_null=True, help_text="null: of the last seven days, not stored")

    class Meta:
        model = NoiseReport
        fields = [
            "id",
            "from_ms",
            "to_ms",
            "made_ms",
            "rules",
            "alerts",
            "notifications",
            "unattended",
            "flaps",
            "is_cut",
        ]


class WholeReportSerializer(serializers.Serializer[Any]):
    """The numbers of a week, and of its noisiest rules by notifications, by alerts, by unattended and by flaps."""

    report = NoiseReportSerializer()
    rules = NoisyRuleSerializer(many=True)


class NoiseReportPageSerializer(serializers.Serializer[Any]):
    """Some reports; ``next`` is the cursor of the following page, null on the last one."""

    noise_reports = NoiseReportSerializer(many=True)
    next = serializers.IntegerField(allow_null=True)


class NoiseReports(OrganisationOperation):
    """The noise reports of an organisation."""

    @extend_schema(
        operation_id="noise_reports",
        parameters=[NewestFirstQuery],
        responses={200: NoiseReportPageSerializer, 400: FailureSerializer, **_READ},
    )
    def get(self, request: Request, organisation_id: int) -> Response:
        """One a week, newest first, without their rules; ``cursor`` goes on where a page ended."""
        own, query = self.membership(organisation_id, Right.SEE_APP), self.validated_query(NewestFirstQuery)
        reports, cursor = newest_page(NoiseReport.objects.filter(organisation=own.organisation), **query)
        return Response(NoiseReportPageSerializer({"noise_reports": reports, "next": cursor}).data)


class OneNoiseReport(OrganisationOperation):
    """One noise report."""

    @extend_schema(operation_id="noise_report", responses={200: WholeReportSerializer, **_READ})
    def get(self, request: Request, organisation_id: int, number: int) -> Response:
        """It, with its noisiest rules; the first ten of them were tried with a longer ``for``."""
        report = self.row(NoiseReport, self.membership(organisation_id, Right.SEE_APP), number)
        rules = report.noisy_rules.select_related("rule")
        return Response(WholeReportSerializer({"report": report, "rules": rules}).data)


class LastWeek(OrganisationOperation):
    """The noise of the last seven days."""

    @extend_schema(operation_id="noise_last_week", responses={200: WholeReportSerializer, **_READ})
    def get(self, request: Request, organisation_id: int) -> Response:
        """What a report of the last seven days would count; nothing is stored, and no rule is tried."""
        own = self.membership(organisation_id, Right.SEE_APP)
        report, rules = count_last_week(own.organisation.pk, _clock.now_ms())
        return Response(WholeReportSerializer({"report": report, "rules": rules}).data)
