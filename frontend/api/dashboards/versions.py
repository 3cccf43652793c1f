"""Versions of a dashboard by REST: list, read, restore. None is changed; the oldest ones go by themselves."""

from typing import Any

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from frontend.api.base import FailureSerializer
from frontend.api.dashboards.documents import READ, DashboardOperation, DashboardSerializer, answer, find
from frontend.dashboards import storage
from frontend.dashboards.models import Dashboard, DashboardVersion
from spm.accounts.organisations.rights import Right

_NUMBER_MAX = 2**31 - 1  # of the column


class VersionRowSerializer(serializers.ModelSerializer[DashboardVersion]):
    """A version in a list."""

    class Meta:
        model = DashboardVersion
        fields = ["number", "author", "note", "saved_ms", "size_bytes"]


class VersionSerializer(VersionRowSerializer):
    """A version with its document."""

    document = serializers.JSONField()

    class Meta(VersionRowSerializer.Meta):
        fields = [*VersionRowSerializer.Meta.fields, "document"]


class VersionsSerializer(serializers.Serializer[Any]):
    """The kept versions of a dashboard."""

    versions = VersionRowSerializer(many=True)


class Versions(DashboardOperation):
    """The versions of a dashboard."""

    @extend_schema(operation_id="dashboard_versions", responses={200: VersionsSerializer, **READ})
    def get(self, request: Request, app_id: int, uid: str) -> Response:
        """The kept ones, newest first, without their documents."""
        versions = find(self.app(app_id), uid).versions.defer("document")
        return Response(VersionsSerializer({"versions": versions}).data)


class OneVersion(DashboardOperation):
    """One version."""

    @extend_schema(operation_id="dashboard_version", responses={200: VersionSerializer, **READ})
    def get(self, request: Request, app_id: int, uid: str, number: int) -> Response:
        """It, with its document."""
        return Response(VersionSerializer(_version(find(self.app(app_id), uid), number)).data)


class RestoreVersion(DashboardOperation):
    """Saves an older version once more."""

    @extend_schema(
        operation_id="dashboard_restore",
        request=None,
        responses={200: DashboardSerializer, 409: FailureSerializer, **READ},
    )
    def post(self, request: Request, app_id: int, uid: str, number: int) -> Response:
        """Make it the newest version; for editors. What was newest stays a version."""
        dashboard = find(self.app(app_id, Right.EDIT_DASHBOARDS), uid)
        storage.restore(dashboard, _version(dashboard, number).number, self.author())
        return answer(dashboard)


def _version(dashboard: Dashboard, number: int) -> DashboardVersion:
    version = dashboard.versions.filter(number=min(number, _NUMBER_MAX)).first()
    if version is None:
        raise Http404("There is no such version any more.")
    return version
