"""What a person does to an alert: take it, so that it is not repeated until a time, or end it by hand."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from alerts import rulebook
from alerts.models import Episode, ManualEnd
from alerts.models.telling import Acknowledgement
from alerts.telling import actions
from alerts.telling.limits import ACKNOWLEDGE_MS
from frontend.api.accounts.organisations import OrganisationOperation
from frontend.api.base import FailureSerializer, row_of
from spm.accounts.organisations.rights import Right
from spm.clock import SystemClock

_clock = SystemClock()
_STATUSES = (400, 401, 403, 404, 409)


class AcknowledgeSerializer(serializers.Serializer[Any]):
    """For how long."""

    for_ms = serializers.IntegerField(
        default=ACKNOWLEDGE_MS, min_value=1, max_value=ACKNOWLEDGE_MS, help_text="a day if it is left out, and at most"
    )


class AcknowledgementSerializer(serializers.ModelSerializer[Acknowledgement]):
    """Who has taken an alert, and until when."""

    alert = serializers.IntegerField(source="episode_id")
    by = serializers.CharField(source="who")

    class Meta:
        model = Acknowledgement
        fields = ["alert", "by", "at_ms", "until_ms"]


class ManualEndSerializer(serializers.ModelSerializer[ManualEnd]):
    """Who ended an alert, and from which step on."""

    by = serializers.CharField(default="a former member")

    class Meta:
        model = ManualEnd
        fields = ["by", "at_ms", "made_ms"]


class EndAlert(OrganisationOperation):
    """An end of an alert by hand."""

    @extend_schema(
        operation_id="alert_end",
        request=None,
        responses={200: ManualEndSerializer, **dict.fromkeys(_STATUSES, FailureSerializer)},
    )
    def post(self, request: Request, organisation_id: int, number: int) -> Response:
        """End an open alert at the next step; it fires again only after it was well. A second time changes nothing."""
        own = self.membership(organisation_id, Right.ACKNOWLEDGE)
        episodes = Episode.objects.filter(rule__app__organisation=own.organisation, rule__app__going=None)
        end = rulebook.end_alert(row_of(episodes, number), by=own.user, now_ms=_clock.now_ms())
        return Response(ManualEndSerializer(end).data)


class Acknowledge(OrganisationOperation):
    """Who has taken an alert."""

    @extend_schema(
        operation_id="alert_acknowledge",
        request=AcknowledgeSerializer,
        responses={200: AcknowledgementSerializer, **dict.fromkeys(_STATUSES, FailureSerializer)},
    )
    def post(self, request: Request, organisation_id: int, number: int) -> Response:
        """Take an open alert, by the number of its episode; for editors. A second time sets another end."""
        own = self.membership(organisation_id, Right.ACKNOWLEDGE)
        episodes = Episode.objects.filter(rule__app__organisation=own.organisation, rule__app__going=None)
        episode = row_of(episodes, number)
        for_ms = self.validated_body(AcknowledgeSerializer)["for_ms"]
        taken = actions.acknowledge_episode(episode, by=own.user, for_ms=for_ms, now_ms=_clock.now_ms())
        return Response(AcknowledgementSerializer(taken).data)
