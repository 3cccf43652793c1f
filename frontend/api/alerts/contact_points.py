"""Contact points of an organisation: named lists of receivers, to which policies lead: list, write, delete."""

from typing import Any

from django.db import transaction
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from alerts.models.telling import ContactPoint
from alerts.notify.registry import shown
from alerts.telling import actions
from frontend.api.accounts.organisations import OrganisationOperation
from frontend.api.alerts.cursor_pages import NewestFirstQuery, newest_page
from frontend.api.base import FailureSerializer
from spm.accounts.organisations.rights import Right
from spm.clock import SystemClock
from spm.limits import RULE_RECEIVERS_MAX

_clock = SystemClock()
_READ = {401: FailureSerializer, 403: FailureSerializer, 404: FailureSerializer}
_WRITE = {**_READ, 400: FailureSerializer, 422: FailureSerializer}


class ContactPointDraftSerializer(serializers.Serializer[Any]):
    """A contact point to create or to replace."""

    name = serializers.CharField(max_length=120, help_text="one that there is gets these receivers instead of its own")
    receivers = serializers.ListField(
        child=serializers.CharField(max_length=500), min_length=1, max_length=RULE_RECEIVERS_MAX
    )
    wants_report = serializers.BooleanField(
        required=False, help_text="its mail addresses get the weekly noise report; absent: as it was, at first not"
    )


class ContactPointSerializer(serializers.ModelSerializer[ContactPoint]):
    """A contact point."""

    receivers = serializers.SerializerMethodField(help_text="without what is secret of them")

    class Meta:
        model = ContactPoint
        fields = ["id", "name", "receivers", "wants_report"]

    def get_receivers(self, point: ContactPoint) -> list[str]:
        """Return the receivers as pages show them."""
        return [shown(each.kind, each.target) for each in point.receivers.all()]


class ContactPointPageSerializer(serializers.Serializer[Any]):
    """Some contact points; ``next`` is the cursor of the following page, null on the last one."""

    contact_points = ContactPointSerializer(many=True)
    next = serializers.IntegerField(allow_null=True)


class ContactPoints(OrganisationOperation):
    """The contact points of an organisation."""

    @extend_schema(
        operation_id="contact_points",
        parameters=[NewestFirstQuery],
        responses={200: ContactPointPageSerializer, 400: FailureSerializer, **_READ},
    )
    def get(self, request: Request, organisation_id: int) -> Response:
        """Some of them, newest first; ``cursor`` goes on where a page ended."""
        own, query = self.membership(organisation_id, Right.SEE_APP), self.validated_query(NewestFirstQuery)
        rows = ContactPoint.objects.filter(organisation=own.organisation).prefetch_related("receivers")
        points, cursor = newest_page(rows, **query)
        return Response(ContactPointPageSerializer({"contact_points": points, "next": cursor}).data)

    @extend_schema(
        operation_id="contact_point_write",
        request=ContactPointDraftSerializer,
        responses={201: ContactPointSerializer, **_WRITE},
    )
    def post(self, request: Request, organisation_id: int) -> Response:
        """Create or replace the one of this name; for admins."""
        own = self.membership(organisation_id, Right.MANAGE_CONTACT_POINTS)
        body, now_ms = self.validated_body(ContactPointDraftSerializer), _clock.now_ms()
        targets = tuple(body["receivers"])
        with transaction.atomic():
            point = actions.add_contact_point(own.organisation, body["name"], targets, by=own.user, now_ms=now_ms)
            if "wants_report" in body:
                actions.want_report(point, wants=body["wants_report"], by=own.user)
        point.refresh_from_db()
        return Response(ContactPointSerializer(point).data, status=status.HTTP_201_CREATED)


class OneContactPoint(OrganisationOperation):
    """One contact point."""

    @extend_schema(operation_id="contact_point_delete", request=None, responses={204: None, **_READ})
    def delete(self, request: Request, organisation_id: int, number: int) -> Response:
        """Delete it with its policies, for admins. What its receivers were told of is ended."""
        own = self.membership(organisation_id, Right.MANAGE_CONTACT_POINTS)
        actions.remove_contact_point(self.row(ContactPoint, own, number), by=own.user, now_ms=_clock.now_ms())
        return Response(status=status.HTTP_204_NO_CONTENT)
