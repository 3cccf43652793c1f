"""Notifications of an organisation, and what became of them: list, one, try again; and receivers, with a test.

Delivery is done by the senders of ``alerts.telling``, not here: a test or a further try is answered at once, and its
result is read from the notification a little later. No answer has the whole target of a receiver whose URL is a secret.
"""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from alerts.models.telling import Delivery, Notification, Receiver
from alerts.notify.registry import shown
from alerts.notify.wording import subject
from alerts.pages.notification_rows import receivers_of
from alerts.telling import actions, budgets
from frontend.api.accounts.organisations import OrganisationOperation
from frontend.api.alerts.cursor_pages import NewestFirstQuery, newest_page
from frontend.api.base import FailureSerializer
from spm.accounts.organisations.rights import Right
from spm.clock import SystemClock

_clock = SystemClock()
_READ = {401: FailureSerializer, 403: FailureSerializer, 404: FailureSerializer}


class ReceiverSerializer(serializers.Serializer[Any]):
    """A receiver, and whether it works."""

    id = serializers.IntegerField(source="row.pk")
    kind = serializers.CharField(source="row.kind")
    target = serializers.CharField(source="shown", help_text="without what is secret of it")
    confirmed_ms = serializers.IntegerField(
        source="row.confirmed_ms", allow_null=True, help_text="since when it gets notifications; null: it does not"
    )
    dead_in_a_row = serializers.IntegerField(
        source="row.dead_in_a_row", help_text="notifications since one was delivered"
    )
    is_failing = serializers.BooleanField(help_text="so many that it is tried only once an hour")


class NotificationSerializer(serializers.ModelSerializer[Notification]):
    """A notification with its delivery."""

    receiver = serializers.IntegerField(source="receiver_id")
    target = serializers.SerializerMethodField(help_text="its receiver, without what is secret of it")
    subject = serializers.SerializerMethodField()
    alerts = serializers.SerializerMethodField(help_text="the episodes that it speaks of; none for a test")
    answer = serializers.CharField(help_text="what the other side said to the last attempt")

    class Meta:
        model = Notification
        fields = [
            "id",
            "key",
            "receiver",
            "target",
            "subject",
            "alerts",
            "state",
            "attempts",
            "created_ms",
            "next_attempt_ms",
            "sent_ms",
            "is_doubtful",
            "answer",
            "took_ms",
        ]

    def get_target(self, row: Notification) -> str:
        """Return the receiver as pages show it."""
        return shown(row.receiver.kind, row.receiver.target)

    def get_subject(self, row: Notification) -> str:
        """Return what the notification says in one line."""
        return subject(row.body)

    def get_alerts(self, row: Notification) -> list[int]:
        """Return the numbers of its episodes."""
        return sorted(map(int, row.levels))


class NotificationPageSerializer(serializers.Serializer[Any]):
    """Some notifications; ``next`` is the cursor of the following page, null on the last one."""

    notifications = NotificationSerializer(many=True)
    next = serializers.IntegerField(allow_null=True)


class NotificationQuery(NewestFirstQuery):
    """Which notifications to list."""

    state = serializers.ChoiceField(choices=Delivery.choices, required=False)
    receiver = serializers.IntegerField(required=False, min_value=0, max_value=2**62)


class Notifications(OrganisationOperation):
    """The notifications of an organisation."""

    @extend_schema(
        operation_id="notifications",
        parameters=[NotificationQuery],
        responses={200: NotificationPageSerializer, 400: FailureSerializer, **_READ},
    )
    def get(self, request: Request, organisation_id: int) -> Response:
        """Those of the last 90 days, newest first; ``cursor`` goes on where a page ended."""
        own, filters = self.membership(organisation_id, Right.SEE_APP), self.validated_query(NotificationQuery)
        cursor, limit = filters.pop("cursor"), filters.pop("limit")
        rows = Notification.objects.filter(organisation=own.organisation, **filters).select_related("receiver")
        notifications, following = newest_page(rows, cursor, limit)
        return Response(NotificationPageSerializer({"notifications": notifications, "next": following}).data)


class OneNotification(OrganisationOperation):
    """One notification."""

    @extend_schema(operation_id="notification", responses={200: NotificationSerializer, **_READ})
    def get(self, request: Request, organisation_id: int, number: int) -> Response:
        """It, with the result of its delivery so far."""
        own = self.membership(organisation_id, Right.SEE_APP)
        return Response(NotificationSerializer(self.row(Notification, own, number)).data)


class RetryNotification(OrganisationOperation):
    """A further try to deliver a notification."""

    @extend_schema(operation_id="notification_retry", request=None, responses={200: NotificationSerializer, **_READ})
    def post(self, request: Request, organisation_id: int, number: int) -> Response:
        """Try a waiting one now; what a dead one had to say is written anew, under another key. For editors."""
        own = self.membership(organisation_id, Right.RETRY_NOTIFICATION)
        actions.try_again(self.row(Notification, own, number), by=own.user, now_ms=_clock.now_ms())
        return Response(NotificationSerializer(self.row(Notification, own, number)).data)


class BudgetSerializer(serializers.Serializer[Any]):
    """How many notifications the organisation may be sent: what is due beyond that waits, and comes as digests."""

    tokens = serializers.FloatField(help_text="now")
    tokens_max = serializers.IntegerField(help_text="at once, after a quiet time")
    per_hour = serializers.IntegerField()
    at_ms = serializers.IntegerField()


class Budget(OrganisationOperation):
    """The budget of notifications."""

    @extend_schema(operation_id="notification_budget", responses={200: BudgetSerializer, **_READ})
    def get(self, request: Request, organisation_id: int) -> Response:
        """It, as it is now. Each receiver has one of its own besides."""
        own = self.membership(organisation_id, Right.SEE_APP)
        return Response(BudgetSerializer(budgets.now_of(own.organisation.pk, _clock.now_ms())).data)


class Receivers(OrganisationOperation):
    """The receivers of an organisation."""

    @extend_schema(operation_id="receivers", responses={200: ReceiverSerializer(many=True), **_READ})
    def get(self, request: Request, organisation_id: int) -> Response:
        """All of them, failing ones first."""
        own = self.membership(organisation_id, Right.SEE_APP)
        return Response(ReceiverSerializer(receivers_of(own.organisation.pk), many=True).data)


class ReceiverTest(OrganisationOperation):
    """A test of a receiver."""

    @extend_schema(
        operation_id="receiver_test",
        request=None,
        responses={201: NotificationSerializer, 409: FailureSerializer, **_READ},
    )
    def post(self, request: Request, organisation_id: int, number: int) -> Response:
        """Write a test notification, for editors. Read it again for its delivery: sent, or the answer that it got."""
        own = self.membership(organisation_id, Right.TEST_RECEIVER)
        row = actions.test_fire(self.row(Receiver, own, number), by=own.user, now_ms=_clock.now_ms())
        return Response(NotificationSerializer(row).data, status=status.HTTP_201_CREATED)
