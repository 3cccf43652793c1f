"""Tries a rule on past data: what it would have said, on what is known now or on what live judging knew."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from alerts.backtesting.backtests import rule_to_try, try_rule
from alerts.expressions import admitted
from alerts.models import Rule
from alerts.telling.limits import WINDOW_MS_MAX
from frontend.api.alerts.alert_rules import KINDS
from frontend.api.base import ColumnsRenderer, FailureSerializer, Operation
from spm.accounts.organisations.rights import Right
from spm.limits import RULE_DURATION_MAX_MS, RULE_EXPR_CHARS_MAX, TIME_MAX_MS

_FAILURES = dict.fromkeys((400, 401, 404, 409, 422, 429, 503), FailureSerializer)
_FIELDS: tuple[str, ...] = (
    "kind",
    "expr",
    "comparator",
    "threshold",
    "recovery",
    "for_ms",
    "keep_firing_for_ms",
    "missing",
    "hold_ms",
    "missing_for_ms",
    "window_ms",
    "horizon_ms",
    "forget_ms",
    "weeks",
    "spread_min",
    "by",
    "schedule_cron",
    "schedule_zone",
    "schedule_ms",
)


def _duration() -> serializers.IntegerField:
    return serializers.IntegerField(required=False, min_value=0, max_value=RULE_DURATION_MAX_MS)


class BacktestSerializer(serializers.Serializer[dict[str, Any]]):
    """A rule of the app by its number, or the fields of one; and the time range in ms."""

    rule = serializers.IntegerField(required=False)
    kind = serializers.ChoiceField(required=False, choices=KINDS)
    expr = serializers.CharField(required=False, max_length=RULE_EXPR_CHARS_MAX)
    comparator = serializers.ChoiceField(required=False, allow_blank=True, choices=Rule.COMPARATORS)
    threshold = serializers.FloatField(required=False)
    recovery = serializers.FloatField(required=False, allow_null=True)
    for_ms = _duration()
    keep_firing_for_ms = _duration()
    missing = serializers.ChoiceField(required=False, choices=Rule.MISSING)
    hold_ms = _duration()
    missing_for_ms = _duration()
    window_ms = _duration()
    horizon_ms = _duration()
    forget_ms = _duration()
    weeks = serializers.IntegerField(required=False, min_value=3, max_value=8)
    spread_min = serializers.FloatField(required=False, min_value=0.0)
    by = serializers.ListField(required=False, child=serializers.CharField(max_length=200), max_length=20)
    schedule_cron = serializers.CharField(required=False, allow_blank=True, max_length=120)
    schedule_zone = serializers.CharField(required=False, max_length=64)
    schedule_ms = serializers.IntegerField(required=False, min_value=1, max_value=WINDOW_MS_MAX)
    from_ms = serializers.IntegerField(min_value=0, max_value=TIME_MAX_MS)
    to_ms = serializers.IntegerField(min_value=0, max_value=TIME_MAX_MS)
    as_live_knew = serializers.BooleanField(default=False, help_text="judge each step on what was known then")


class PastEpisodeSerializer(serializers.Serializer[Any]):
    """One stretch in which a series would have fired."""

    labels = serializers.DictField(child=serializers.CharField())
    aspect = serializers.CharField()
    start_ms = serializers.IntegerField()
    end_ms = serializers.IntegerField(allow_null=True)
    reason = serializers.CharField()
    value = serializers.FloatField(allow_null=True, help_text="null also stands for NaN and the infinities")


class ForEffectSerializer(serializers.Serializer[Any]):
    """The rule with another ``for``."""

    for_ms = serializers.IntegerField()
    episodes = serializers.IntegerField()
    notifications = serializers.IntegerField(help_text="to one receiver")


class ReportSerializer(serializers.Serializer[Any]):
    """What the rule would have said."""

    first_ms = serializers.IntegerField()
    last_ms = serializers.IntegerField()
    episodes = PastEpisodeSerializer(many=True)
    notifications = serializers.IntegerField(help_text="to one receiver")
    effects = ForEffectSerializer(many=True, help_text="without for, and with longer ones")


class Backtests(Operation):
    """Tries rules on past data."""

    renderer_classes = [ColumnsRenderer]

    @extend_schema(operation_id="backtest", request=BacktestSerializer, responses={200: ReportSerializer, **_FAILURES})
    def post(self, request: Request, app_id: int) -> Response:
        """Try a rule; nothing is written. At most 31 days, or one day with ``as_live_knew``."""
        app, body = self.app(app_id, Right.TRY_RULE), self.validated_body(BacktestSerializer)
        fields = {name: body[name] for name in _FIELDS if name in body}
        rule = rule_to_try(app, body.get("rule"), fields)
        with admitted(app.organisation_id):
            report = try_rule(rule, body["from_ms"], body["to_ms"], as_live_knew=body["as_live_knew"])
        return Response(ReportSerializer(report).data)
