"""Policies of an organisation: which alerts go to which contact point, and how they are grouped; and inhibitions.

Policies are a tree: list, create, replace, delete, and try where an alert would go. Durations are milliseconds.
"""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from alerts.models.telling import Inhibition, Policy
from alerts.telling import limits
from alerts.telling.settings import rows
from alerts.telling.settings.tester import Verdict, tree_of, try_route
from frontend.api.accounts.organisations import OrganisationOperation
from frontend.api.alerts.cursor_pages import NewestFirstQuery, newest_page
from frontend.api.base import FailureSerializer
from spm.accounts.organisations.rights import Right
from spm.clock import SystemClock

_clock = SystemClock()
_READ = {401: FailureSerializer, 403: FailureSerializer, 404: FailureSerializer}
_WRITE = {**_READ, 400: FailureSerializer, 409: FailureSerializer, 422: FailureSerializer}
_NUMBER_MAX = 1 << 62
_LABELS_MAX = 100


class _WaitField(serializers.IntegerField):
    """A wait of a policy."""

    def __init__(self, default_ms: int, **kwargs: Any) -> None:
        super().__init__(default=default_ms, min_value=0, max_value=limits.POLICY_SPAN_MS_MAX, **kwargs)


class MatchersField(serializers.CharField):
    """Matchers, as text."""

    def __init__(self, **kwargs: Any) -> None:
        text = 'which alerts, by their labels: host="web-1", env=~"prod|stage"'
        super().__init__(max_length=limits.MATCHERS_CHARS_MAX, **{"help_text": text, **kwargs})


class LabelNamesField(serializers.ListField):
    """Names of labels."""

    def __init__(self, **kwargs: Any) -> None:
        name = serializers.CharField(max_length=200)
        super().__init__(child=name, default=list, max_length=limits.POLICY_GROUP_BY_MAX, **kwargs)


class EscalationStepSerializer(serializers.Serializer[Any]):
    """Who hears, besides, of an alert that is still open after a time and that nobody has acknowledged then."""

    after_ms = serializers.IntegerField(min_value=limits.POLICY_INTERVAL_MS_MIN, max_value=limits.POLICY_SPAN_MS_MAX)
    contact_point = serializers.IntegerField(source="contact_point_id", min_value=0, max_value=_NUMBER_MAX)


class PolicyDraftSerializer(serializers.Serializer[Any]):
    """A policy to create or to put in place of another."""

    parent = serializers.IntegerField(  # type: ignore[assignment]  # the name is that of a field's attribute
        source="parent_id", default=None, allow_null=True, min_value=0, max_value=_NUMBER_MAX, help_text="null: a root"
    )
    position = serializers.IntegerField(default=0, min_value=0, max_value=10_000, help_text="among its siblings")
    matchers = MatchersField()
    contact_point = serializers.IntegerField(source="contact_point_id", min_value=0, max_value=_NUMBER_MAX)
    group_by = LabelNamesField(help_text="alerts that agree in these labels are one group")
    wait_ms = _WaitField(
        limits.GROUP_WAIT_MS, help_text="for further alerts, before a new group gets its first notification"
    )
    interval_ms = _WaitField(limits.GROUP_INTERVAL_MS, help_text="at least, between two notifications of a group")
    repeat_ms = _WaitField(limits.GROUP_REPEAT_MS, help_text="then what nobody acknowledges is said again")
    goes_on = serializers.BooleanField(default=False, help_text="the siblings after it may take the alert, too")
    escalation = EscalationStepSerializer(many=True, default=list)


class PolicySerializer(PolicyDraftSerializer):
    """A policy."""

    id = serializers.IntegerField(source="pk")
    contact_point_name = serializers.CharField(source="contact_point.name")
    escalation = EscalationStepSerializer(source="escalation.all", many=True)


class PolicyTreeSerializer(serializers.Serializer[Any]):
    """All policies, each after its parent, in the order in which an alert comes to them."""

    policies = PolicySerializer(many=True)


class RouteTestDraftSerializer(serializers.Serializer[Any]):
    """An alert to try, by its labels, with its ``alertname``, ``severity`` and ``app``."""

    labels = serializers.DictField(child=serializers.CharField(allow_blank=True, max_length=1_000))

    def validate_labels(self, value: dict[str, str]) -> dict[str, str]:
        """Refuse more labels than an alert has."""
        if len(value) > _LABELS_MAX:
            raise serializers.ValidationError(f"{len(value)} labels, where at most {_LABELS_MAX} are allowed")
        return value


class VerdictSerializer(serializers.Serializer[Verdict]):
    """What one policy does with the alert, and why."""

    policy = serializers.IntegerField(source="policy.pk")
    contact_point = serializers.CharField(source="policy.contact_point.name")
    takes = serializers.BooleanField(help_text="the alert goes to this contact point")
    reason = serializers.CharField()
    group = serializers.DictField(child=serializers.CharField(), help_text="of its group, if it takes the alert")


class RouteTestSerializer(serializers.Serializer[Any]):
    """Where the alert would go besides the receivers of its rule, and what keeps it from being told now."""

    verdicts = VerdictSerializer(many=True)
    mutes = serializers.ListField(child=serializers.CharField(), help_text="silences and maintenance windows")


class InhibitionDraftSerializer(serializers.Serializer[Any]):
    """An inhibition to create or to put in place of another."""

    source = MatchersField(  # type: ignore[assignment]  # the name is that of a field's parameter
        help_text="alerts that match this keep others from being told"
    )
    target = MatchersField(help_text="those that match this")
    equal = LabelNamesField(help_text="where these labels agree")


class InhibitionSerializer(InhibitionDraftSerializer):
    """An inhibition."""

    id = serializers.IntegerField(source="pk")


class InhibitionPageSerializer(serializers.Serializer[Any]):
    """Some inhibitions; ``next`` is the cursor of the following page, null on the last one."""

    inhibitions = InhibitionSerializer(many=True)
    next = serializers.IntegerField(allow_null=True)


def _steps(body: dict[str, Any]) -> list[tuple[int, int]]:
    """Take the steps of escalation out of the body."""
    return [(step["after_ms"], step["contact_point_id"]) for step in body.pop("escalation")]


class Policies(OrganisationOperation):
    """The policies of an organisation."""

    @extend_schema(operation_id="policies", responses={200: PolicyTreeSerializer, **_READ})
    def get(self, request: Request, organisation_id: int) -> Response:
        """The whole tree."""
        own = self.membership(organisation_id, Right.SEE_APP)
        policies = [policy for policy, _ in tree_of(own.organisation.pk)]
        return Response(PolicyTreeSerializer({"policies": policies}).data)

    @extend_schema(
        operation_id="policy_create", request=PolicyDraftSerializer, responses={201: PolicySerializer, **_WRITE}
    )
    def post(self, request: Request, organisation_id: int) -> Response:
        """Create one; for admins. It is in force at once, also for alerts that are open and that nobody was told of."""
        own, body = self.membership(organisation_id, Right.MANAGE_POLICIES), self.validated_body(PolicyDraftSerializer)
        policy, steps = Policy(organisation=own.organisation), _steps(body)
        rows.write_policy(policy, body, steps, by=own.user, now_ms=_clock.now_ms())
        return Response(PolicySerializer(policy).data, status=status.HTTP_201_CREATED)


class OnePolicy(OrganisationOperation):
    """One policy."""

    @extend_schema(
        operation_id="policy_replace", request=PolicyDraftSerializer, responses={200: PolicySerializer, **_WRITE}
    )
    def put(self, request: Request, organisation_id: int, number: int) -> Response:
        """Put another in its place, for admins: what is left out gets its default. Those below it stay there."""
        own, body = self.membership(organisation_id, Right.MANAGE_POLICIES), self.validated_body(PolicyDraftSerializer)
        policy, steps = self.row(Policy, own, number), _steps(body)
        rows.write_policy(policy, body, steps, by=own.user, now_ms=_clock.now_ms())
        return Response(PolicySerializer(policy).data)

    @extend_schema(operation_id="policy_delete", request=None, responses={204: None, **_READ})
    def delete(self, request: Request, organisation_id: int, number: int) -> Response:
        """Delete it and those below it; for admins."""
        own = self.membership(organisation_id, Right.MANAGE_POLICIES)
        rows.delete(self.row(Policy, own, number), by=own.user, now_ms=_clock.now_ms())
        return Response(status=status.HTTP_204_NO_CONTENT)


class RouteTest(OrganisationOperation):
    """Where an alert would go."""

    @extend_schema(
        operation_id="policies_test", request=RouteTestDraftSerializer, responses={200: RouteTestSerializer, **_WRITE}
    )
    def post(self, request: Request, organisation_id: int) -> Response:
        """Say of every policy whether it takes an alert with these labels, and why. Nothing is sent."""
        own, body = self.membership(organisation_id, Right.SEE_APP), self.validated_body(RouteTestDraftSerializer)
        return Response(RouteTestSerializer(try_route(own.organisation.pk, body["labels"], _clock.now_ms())).data)


class Inhibitions(OrganisationOperation):
    """The inhibitions of an organisation."""

    @extend_schema(
        operation_id="inhibitions",
        parameters=[NewestFirstQuery],
        responses={200: InhibitionPageSerializer, 400: FailureSerializer, **_READ},
    )
    def get(self, request: Request, organisation_id: int) -> Response:
        """Some of them, newest first; ``cursor`` goes on where a page ended."""
        own, query = self.membership(organisation_id, Right.SEE_APP), self.validated_query(NewestFirstQuery)
        inhibitions, cursor = newest_page(Inhibition.objects.filter(organisation=own.organisation), **query)
        return Response(InhibitionPageSerializer({"inhibitions": inhibitions, "next": cursor}).data)

    @extend_schema(
        operation_id="inhibition_create",
        request=InhibitionDraftSerializer,
        responses={201: InhibitionSerializer, **_WRITE},
    )
    def post(self, request: Request, organisation_id: int) -> Response:
        """Create one; for admins."""
        own = self.membership(organisation_id, Right.MANAGE_POLICIES)
        body, inhibition = self.validated_body(InhibitionDraftSerializer), Inhibition(organisation=own.organisation)
        rows.write(inhibition, body, by=own.user, now_ms=_clock.now_ms())
        return Response(InhibitionSerializer(inhibition).data, status=status.HTTP_201_CREATED)


class OneInhibition(OrganisationOperation):
    """One inhibition."""

    @extend_schema(
        operation_id="inhibition_replace",
        request=InhibitionDraftSerializer,
        responses={200: InhibitionSerializer, **_WRITE},
    )
    def put(self, request: Request, organisation_id: int, number: int) -> Response:
        """Put another in its place; for admins."""
        own = self.membership(organisation_id, Right.MANAGE_POLICIES)
        body, inhibition = self.validated_body(InhibitionDraftSerializer), self.row(Inhibition, own, number)
        rows.write(inhibition, body, by=own.user, now_ms=_clock.now_ms())
        return Response(InhibitionSerializer(inhibition).data)

    @extend_schema(operation_id="inhibition_delete", request=None, responses={204: None, **_READ})
    def delete(self, request: Request, organisation_id: int, number: int) -> Response:
        """Delete it, for admins: what it kept back and still fires is told."""
        own = self.membership(organisation_id, Right.MANAGE_POLICIES)
        rows.delete(self.row(Inhibition, own, number), by=own.user, now_ms=_clock.now_ms())
        return Response(status=status.HTTP_204_NO_CONTENT)
