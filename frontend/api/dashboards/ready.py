"""Ready dashboards by REST: those that suit what arrives, the document of each, and a copy of it."""

from typing import Any

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from frontend.api.base import FailureSerializer
from frontend.api.dashboards.documents import READ, DashboardOperation, DashboardSerializer, answer
from frontend.dashboards import storage
from frontend.dashboards.ready import offers
from frontend.dashboards.ready.form import ReadyDashboard
from spm.accounts.organisations.rights import Right
from spm.clock import SystemClock
from spm.errors import Refused

_clock = SystemClock()


class ReadyRowSerializer(serializers.Serializer[Any]):
    """A ready dashboard in a list."""

    key = serializers.CharField()
    title = serializers.CharField()
    description = serializers.CharField()
    signs = serializers.ListField(child=serializers.CharField(), help_text="metrics that all must arrive")


class ReadySerializer(ReadyRowSerializer):
    """A ready dashboard with its document."""

    document = serializers.SerializerMethodField()

    def get_document(self, ready: ReadyDashboard) -> dict[str, Any]:
        """Return what a copy begins with."""
        return ready.document().as_dict()


class ReadyListSerializer(serializers.Serializer[Any]):
    """The ready dashboards that suit an app."""

    ready = ReadyRowSerializer(many=True)


class ReadyDashboards(DashboardOperation):
    """The ready dashboards of an app."""

    @extend_schema(
        operation_id="ready_dashboards", responses={200: ReadyListSerializer, 503: FailureSerializer, **READ}
    )
    def get(self, request: Request, app_id: int) -> Response:
        """Those all of whose metrics arrived in the last week."""
        ready = offers.offered(self.app(app_id).pk, _clock.now_ms())
        return Response(ReadyListSerializer({"ready": ready}).data)


class OneReadyDashboard(DashboardOperation):
    """One ready dashboard."""

    @extend_schema(operation_id="ready_dashboard", responses={200: ReadySerializer, **READ})
    def get(self, request: Request, app_id: int, key: str) -> Response:
        """It, with its document, whatever arrives."""
        self.app(app_id)
        return Response(ReadySerializer(_find(key)).data)

    @extend_schema(
        operation_id="ready_dashboard_copy",
        request=None,
        responses={201: DashboardSerializer, 409: FailureSerializer, 422: FailureSerializer, **READ},
    )
    def post(self, request: Request, app_id: int, key: str) -> Response:
        """Create a dashboard from it; for editors."""
        app = self.app(app_id, Right.EDIT_DASHBOARDS)
        dashboard = storage.create(app, _find(key).document(), self.author("a ready dashboard"))
        return answer(dashboard, status.HTTP_201_CREATED)


def _find(key: str) -> ReadyDashboard:
    try:
        return offers.find(key)
    except Refused as error:
        raise Http404(str(error)) from error
