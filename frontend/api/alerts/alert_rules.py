"""Alerting rules of an app: list, create, edit with ``If-Match``, switch on and off, delete; and their alerts.

Durations and times are milliseconds. An edit names the version that it saw, so that no two people overwrite each
other. Rules that came from a rule file may be edited too; the next import of the file sets its fields again.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

import orjson
from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from xxhash import xxh3_64_hexdigest

from alerts import rulebook
from alerts.expressions import check_expression
from alerts.judging import limits as judging_limits
from alerts.judging.conditions import recovery_is_sound
from alerts.judging.kinds import Kind
from alerts.models import AlertEvent, Episode, Instance, Rule, Severity
from alerts.notify.registry import kind_of, receiver_hints, shown
from alerts.rulebook import Draft
from alerts.rulefiles.label_names import WANTED, is_rule_label
from alerts.rulefiles.limits import ANNOTATIONS_MAX, LABELS_MAX
from alerts.telling.limits import WINDOW_MS_MAX
from alerts.templating import template
from frontend.api.alerts.cursor_pages import cut_page
from frontend.api.base import ColumnsRenderer, FailureSerializer, Operation, check_version
from spm import limits
from spm.accounts.models import App
from spm.accounts.organisations.rights import Right
from spm.clock import SystemClock
from spm.errors import BadQuery

_clock = SystemClock()
_READ = {401: FailureSerializer, 404: FailureSerializer}
_WRITE = {**_READ, 400: FailureSerializer, 403: FailureSerializer, 422: FailureSerializer}
_EDIT = {**_WRITE, 412: FailureSerializer, 428: FailureSerializer}
_IF_MATCH = OpenApiParameter("If-Match", OpenApiTypes.STR, OpenApiParameter.HEADER, required=True)
KINDS = [kind.value for kind in Kind]
_PAGE_MAX = 500
Names = TypeVar("Names", dict[str, str], list[str])
_EPISODE_EVENTS_MAX = 50
_DURATIONS = ("for_ms", "keep_firing_for_ms", "hold_ms", "missing_for_ms")
_PLAIN = (
    "name",
    "kind",
    "expr",
    "comparator",
    "threshold",
    "recovery",
    *_DURATIONS,
    "missing",
    "severity",
    "labels",
    "annotations",
    "enabled",
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


class RuleDraftSerializer(serializers.Serializer[Any]):
    """The fields of a rule that people decide."""

    name = serializers.CharField(max_length=limits.RULE_NAME_CHARS_MAX)
    kind = serializers.ChoiceField(choices=KINDS, default=Kind.THRESHOLD.value)
    expr = serializers.CharField(max_length=limits.RULE_EXPR_CHARS_MAX, help_text="PromQL")
    comparator = serializers.ChoiceField(choices=Rule.COMPARATORS, default=">", allow_blank=True)
    threshold = serializers.FloatField(default=0.0)
    recovery = serializers.FloatField(default=None, allow_null=True)
    for_ms = serializers.IntegerField(default=0, min_value=0, max_value=limits.RULE_DURATION_MAX_MS)
    keep_firing_for_ms = serializers.IntegerField(default=0, min_value=0, max_value=limits.RULE_DURATION_MAX_MS)
    missing = serializers.ChoiceField(choices=Rule.MISSING, default="hold")
    hold_ms = serializers.IntegerField(
        default=judging_limits.HOLD_MS, min_value=0, max_value=judging_limits.HOLD_MAX_MS
    )
    missing_for_ms = serializers.IntegerField(
        default=judging_limits.MISSING_FOR_MS, min_value=0, max_value=limits.RULE_DURATION_MAX_MS
    )
    severity = serializers.ChoiceField(choices=Severity.choices, default=Severity.WARNING.value)
    labels = serializers.DictField(child=serializers.CharField(allow_blank=True), default=dict)
    annotations = serializers.DictField(child=serializers.CharField(allow_blank=True), default=dict)
    receivers = serializers.ListField(
        child=serializers.CharField(max_length=500), default=list, max_length=limits.RULE_RECEIVERS_MAX
    )
    enabled = serializers.BooleanField(default=True)
    window_ms = serializers.IntegerField(
        default=judging_limits.WINDOW_MS, min_value=1, max_value=limits.RULE_DURATION_MAX_MS
    )
    horizon_ms = serializers.IntegerField(
        default=judging_limits.HORIZON_MS, min_value=0, max_value=366 * limits.HOUR_MS * 24
    )
    forget_ms = serializers.IntegerField(
        default=judging_limits.FORGET_MS, min_value=1, max_value=limits.RULE_DURATION_MAX_MS
    )
    weeks = serializers.IntegerField(default=judging_limits.ANOMALY_WEEKS, min_value=1, max_value=8)
    spread_min = serializers.FloatField(default=0.0, min_value=0.0)
    by = serializers.ListField(child=serializers.CharField(max_length=200), default=list, max_length=LABELS_MAX)

    schedule_cron = serializers.CharField(
        default="", allow_blank=True, max_length=120, help_text="when it begins to be told: 0 8 * * 1-5; empty: always"
    )
    schedule_zone = serializers.CharField(default="UTC", max_length=64, help_text="the time zone of that")
    schedule_ms = serializers.IntegerField(default=limits.RULE_SCHEDULE_MS, min_value=1, max_value=WINDOW_MS_MAX)

    def validate_expr(self, value: str) -> str:
        """Refuse an expression that no rule may have."""
        if (self.initial_data or {}).get("kind", Kind.THRESHOLD) != Kind.COMPOSITE:
            _checked(check_expression, value)
        return value

    def validate_labels(self, value: dict[str, str]) -> dict[str, str]:
        """Refuse templates that are not valid, and labels that a rule cannot set."""
        return _checked_templates(_checked_names(value), LABELS_MAX, may_query=False)

    def validate_by(self, value: list[str]) -> list[str]:
        """Refuse what is not the name of a label."""
        return _checked_names(value)

    def validate_annotations(self, value: dict[str, str]) -> dict[str, str]:
        """Refuse templates that are not valid."""
        return _checked_templates(value, ANNOTATIONS_MAX, may_query=True)

    def validate_receivers(self, value: list[str]) -> list[str]:
        """Refuse receivers that no notifier takes."""
        for receiver in value:
            if kind_of(receiver) is None:
                raise serializers.ValidationError(f"“{receiver}” is not a valid {receiver_hints()}.")
        return value


class RuleSerializer(serializers.ModelSerializer[Rule]):
    """A rule with its state."""

    file = serializers.CharField(source="group.file", default="", help_text="the rule file it came from")
    group = serializers.CharField(source="group.name", default="")
    receivers = serializers.SerializerMethodField(help_text="without what is secret of them")
    state = serializers.SerializerMethodField(help_text="firing, recovering, error, no data, pending or ok")
    alerts = serializers.SerializerMethodField(help_text="how many of its series are not ok")

    class Meta:
        model = Rule
        fields = ["id", *_PLAIN, "receivers", "file", "group", "created_ms", "changed_ms", "state", "alerts"]

    def get_receivers(self, rule: Rule) -> list[str]:
        """Return the receivers as pages show them."""
        return [shown(kind_of(each) or "", each) for each in rule.receivers]

    def get_state(self, rule: Rule) -> str:
        """Return the worst state of its instances."""
        order = ("error", "firing", "recovering", "no data", "pending")
        states = {instance.shown for instance in rule.instances.all()}
        return next((state for state in order if state in states), "ok")

    def get_alerts(self, rule: Rule) -> int:
        """Count the instances that are not ok."""
        return len(rule.instances.all())


class RulePageSerializer(serializers.Serializer[Any]):
    """Some rules; ``next`` is the cursor of the following page, null on the last one."""

    rules = RuleSerializer(many=True)
    next = serializers.IntegerField(allow_null=True)


class FilterSerializer(serializers.Serializer[Any]):
    """Which rules to list."""

    file = serializers.CharField(required=False)
    group = serializers.CharField(required=False)
    name = serializers.CharField(required=False)
    kind = serializers.ChoiceField(choices=KINDS, required=False)
    severity = serializers.ChoiceField(choices=Severity.choices, required=False)
    enabled = serializers.BooleanField(required=False, allow_null=True, default=None)
    phase = serializers.ChoiceField(choices=["pending", "firing", "recovering"], required=False)
    cursor = serializers.IntegerField(required=False, default=0, min_value=0, max_value=2**62)
    limit = serializers.IntegerField(required=False, default=100, min_value=1, max_value=_PAGE_MAX)


class InstanceSerializer(serializers.ModelSerializer[Instance]):
    """A series of a rule that is not ok."""

    state = serializers.CharField(source="shown")
    rule = serializers.IntegerField(source="rule_id")

    class Meta:
        model = Instance
        fields = [
            "rule",
            "aspect",
            "labels",
            "state",
            "phase",
            "active_ms",
            "since_ms",
            "start_ms",
            "missing_ms",
            "value",
            "detail",
        ]


class TransitionSerializer(serializers.ModelSerializer[AlertEvent]):
    """A transition: the step, the phases, the value that was judged, and the operation that judged it."""

    operation = serializers.IntegerField(source="seq")

    class Meta:
        model = AlertEvent
        fields = ["at_ms", "before", "state", "value", "reason", "operation"]


class EpisodeSerializer(serializers.ModelSerializer[Episode]):
    """An episode with its evidence."""

    transitions = serializers.SerializerMethodField()

    class Meta:
        model = Episode
        fields = [
            "id",
            "aspect",
            "labels",
            "severity",
            "status",
            "start_ms",
            "end_ms",
            "end_reason",
            "found_late",
            "revision",
            "start_value",
            "last_value",
            "transitions",
        ]

    @extend_schema_field(TransitionSerializer(many=True))
    def get_transitions(self, episode: Episode) -> Any:
        """Return the transitions that made it, oldest first."""
        return TransitionSerializer(_transitions(episode), many=True).data


class AlertsSerializer(serializers.Serializer[Any]):
    """The series of a rule that are not ok now, and its newest episodes."""

    instances = InstanceSerializer(many=True)
    episodes = EpisodeSerializer(many=True)


class Rules(Operation):
    """The rules of an app."""

    renderer_classes = [ColumnsRenderer]

    @extend_schema(operation_id="rules", parameters=[FilterSerializer], responses={200: RulePageSerializer, **_READ})
    def get(self, request: Request, app_id: int) -> Response:
        """Some of them, oldest first; ``cursor`` goes on where a page ended."""
        app, filters = self.app(app_id), self.validated_query(FilterSerializer)
        rules, cursor = cut_page(_filtered(app, filters), filters["limit"])
        page = {"rules": rules, "next": cursor}
        return Response(RulePageSerializer(page).data)

    @extend_schema(operation_id="rule_create", request=RuleDraftSerializer, responses={201: RuleSerializer, **_WRITE})
    def post(self, request: Request, app_id: int) -> Response:
        """Create a rule; for editors."""
        app, by = self.app(app_id, Right.WRITE_RULES), self.actor()
        draft = _draft(self.validated_body(RuleDraftSerializer))
        rule = rulebook.write(app, draft, by=by.person, by_name=by.name, now_ms=_clock.now_ms())
        return _answer(rule, status.HTTP_201_CREATED)


class OneRule(Operation):
    """One rule."""

    renderer_classes = [ColumnsRenderer]

    @extend_schema(operation_id="rule", responses={200: RuleSerializer, **_READ})
    def get(self, request: Request, app_id: int, number: int) -> Response:
        """The rule; its header ETag names its version."""
        return _answer(_find(self.app(app_id), number))

    @extend_schema(
        operation_id="rule_edit",
        parameters=[_IF_MATCH],
        request=RuleDraftSerializer(partial=True),
        responses={200: RuleSerializer, **_EDIT},
    )
    def patch(self, request: Request, app_id: int, number: int) -> Response:
        """Change some fields; for editors. It needs the header If-Match with the ETag that was read."""
        app, by = self.app(app_id, Right.WRITE_RULES), self.actor()
        with transaction.atomic():
            rule = _find_version(app, number, request)
            changes = dict(request.data) if isinstance(request.data, dict) else {}
            body = RuleDraftSerializer(data={**_present(rule), **changes})
            body.is_valid(raise_exception=True)
            draft = _draft({"receivers": rule.receivers, **_given(body.validated_data, changes)})
            rule = rulebook.change(rule, draft, by=by.person, by_name=by.name, now_ms=_clock.now_ms())
        return _answer(rule)

    @extend_schema(operation_id="rule_delete", parameters=[_IF_MATCH], responses={204: None, **_EDIT})
    def delete(self, request: Request, app_id: int, number: int) -> Response:
        """Delete a rule; its alerts end. For editors. It needs the header If-Match, too."""
        app, by = self.app(app_id, Right.WRITE_RULES), self.actor()
        with transaction.atomic():
            rule = _find_version(app, number, request)
            rulebook.delete(rule, by=by.person, by_name=by.name, now_ms=_clock.now_ms())
        return Response(status=status.HTTP_204_NO_CONTENT)


class RuleAlerts(Operation):
    """What one rule says."""

    renderer_classes = [ColumnsRenderer]

    @extend_schema(operation_id="rule_alerts", responses={200: AlertsSerializer, **_READ})
    def get(self, request: Request, app_id: int, number: int) -> Response:
        """Its series that are not ok, and its 100 newest episodes with the transitions that made them."""
        rule = _find(self.app(app_id), number)
        episodes = list(Episode.objects.filter(rule=rule)[:100])
        return Response(AlertsSerializer({"instances": rule.instances.all(), "episodes": episodes}).data)


def switch(*, enabled: bool) -> type[Operation]:
    """Return the operation that switches a rule on or off."""
    word = "enable" if enabled else "disable"

    class Switch(Operation):
        """Whether a rule is judged."""

        renderer_classes = [ColumnsRenderer]

        @extend_schema(operation_id=f"rule_{word}", request=None, responses={200: RuleSerializer, **_WRITE})
        def post(self, request: Request, app_id: int, number: int) -> Response:
            """Switch the rule on or off; for editors. Alerts of a rule that is switched off end."""
            app, by = self.app(app_id, Right.WRITE_RULES), self.actor()
            with transaction.atomic():
                rule = _locked(app, number)
                if rule.enabled != enabled:
                    draft = _draft({**_present(rule), "receivers": rule.receivers, "enabled": enabled})
                    rule = rulebook.change(rule, draft, by=by.person, by_name=by.name, now_ms=_clock.now_ms())
            return _answer(rule)

    return Switch


def _filtered(app: App, filters: Mapping[str, Any]) -> QuerySet[Rule]:
    rules = rulebook.rules_of(app).filter(pk__gt=filters["cursor"]).select_related("group")
    columns = {"file": "group__file", "group": "group__name", "phase": "instances__phase"}
    names = ("file", "group", "name", "kind", "severity", "phase")
    rules = rules.filter(**{columns.get(name, name): filters[name] for name in names if name in filters})
    if filters["enabled"] is not None:
        rules = rules.filter(enabled=filters["enabled"])
    return rules.distinct().order_by("pk").prefetch_related("instances")


def _find(app: App, number: int) -> Rule:
    rules = rulebook.rules_of(app).select_related("group", "app__organisation")
    rule = rules.filter(pk=number).first() if number < 2**63 else None
    if rule is None:
        raise Http404("There is no such rule in this app.")
    return rule


def _locked(app: App, number: int) -> Rule:
    """Return a rule that nobody else changes until the transaction ends."""
    rule = _find(app, number)
    Rule.objects.select_for_update().get(pk=rule.pk)
    return _find(app, number)


def _find_version(app: App, number: int, request: Request) -> Rule:
    rule = _locked(app, number)
    check_version(request, _etag(rule))
    return rule


def _etag(rule: Rule) -> str:
    content = {**_present(rule), "receivers": rule.receivers, "changed_ms": rule.changed_ms}
    return f'"{xxh3_64_hexdigest(orjson.dumps(content, option=orjson.OPT_SORT_KEYS))}"'


def _answer(rule: Rule, code: int = status.HTTP_200_OK) -> Response:
    return Response(RuleSerializer(rule).data, status=code, headers={"ETag": _etag(rule)})


def _present(rule: Rule) -> dict[str, Any]:
    return {name: getattr(rule, name) for name in _PLAIN}


def _given(values: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the valid fields, but the receivers only if they were sent: what is shown of them is no receiver."""
    return {name: value for name, value in values.items() if name != "receivers" or "receivers" in body}


def _draft(values: Mapping[str, Any]) -> Draft:
    comparator, threshold, recovery = values["comparator"], values["threshold"], values["recovery"]
    if recovery is not None and not recovery_is_sound(comparator, threshold, recovery):
        text = "This must be on the good side of the threshold of a < or > comparison."
        raise serializers.ValidationError({"recovery": [text]})
    return Draft(**{**values, "receivers": tuple(values["receivers"]), "by": tuple(values["by"])})


def _transitions(episode: Episode) -> QuerySet[AlertEvent]:
    end_ms = episode.start_ms if episode.end_ms is None else episode.end_ms
    events = AlertEvent.objects.filter(
        rule=episode.rule_id, fingerprint=episode.fingerprint, aspect=episode.aspect, superseded_seq=None
    )
    inside = events.filter(episode_ms__lte=end_ms, at_ms__gte=episode.start_ms)
    if episode.end_ms is not None:
        inside = inside.filter(at_ms__lte=episode.end_ms)
    return inside.order_by("at_ms", "pk")[:_EPISODE_EVENTS_MAX]


def _checked(check: Any, value: str) -> None:
    try:
        check(value)
    except BadQuery as error:
        raise serializers.ValidationError(str(error)) from error


def _checked_names(names: Names) -> Names:
    for name in names:
        if not is_rule_label(name):
            raise serializers.ValidationError(f"“{name[:60]}” is not a label that a rule can set; wanted {WANTED}.")
    return names


def _checked_templates(texts: dict[str, str], most: int, *, may_query: bool) -> dict[str, str]:
    if len(texts) > most:
        raise serializers.ValidationError(f"At most {most}.")
    for text in texts.values():
        _checked(partial(template.check, may_query=may_query), text)
    return texts
