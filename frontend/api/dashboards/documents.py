"""Dashboards of an app: list, create, read, replace, delete, import. What a document is says ``frontend.dashboards``.

A change names what it rests on, so that no two people overwrite each other: ``If-Match`` with the ETag that was read is
refused (412) once anybody has saved since; ``base`` in the body, a version's number, keeps what others changed in other
panels, and is refused (409) where both changed the same.
"""

from typing import Any

from django.contrib.auth.models import User
from django.http import Http404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from frontend.api.alerts.cursor_pages import NewestFirstQuery, newest_page
from frontend.api.base import FailureSerializer, Operation, VersionDiffers, check_version
from frontend.dashboards import stars, storage
from frontend.dashboards.document import Document, check
from frontend.dashboards.grafana import importing
from frontend.dashboards.grafana.report import Imported
from frontend.dashboards.limits import IMPORT_BYTES_MAX, NOTE_CHARS_MAX, TITLE_CHARS_MAX
from frontend.dashboards.models import Dashboard
from spm.accounts.models import App
from spm.accounts.organisations.rights import Right
from spm.clock import SystemClock
from spm.errors import Refused

_clock = SystemClock()
READ = {401: FailureSerializer, 403: FailureSerializer, 404: FailureSerializer}
_WRITE = {**READ, 400: FailureSerializer, 409: FailureSerializer, 422: FailureSerializer}
EDIT = {**_WRITE, 412: FailureSerializer, 428: FailureSerializer}
_IF_MATCH = OpenApiParameter("If-Match", OpenApiTypes.STR, OpenApiParameter.HEADER, description="the ETag as read")
_DRY_RUN = OpenApiParameter("dry_run", OpenApiTypes.BOOL, description="only report")


class JSONTextParser(BaseParser):
    """Takes a body of any type as text, up to the size that an import may have."""

    media_type = "*/*"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """Return the text; a longer one is read one byte over the limit, and refused by its reader."""
        body: bytes = stream.read(IMPORT_BYTES_MAX + 1)
        try:
            return body.decode("utf-8", "replace" if len(body) > IMPORT_BYTES_MAX else "strict")  # it may end in a sign
        except UnicodeDecodeError as error:
            raise ParseError("the body is not UTF-8") from error


class DashboardDraftSerializer(serializers.Serializer[Any]):
    """A document to save."""

    document = serializers.JSONField(help_text="title, description, tags, variables and panels")
    note = serializers.CharField(default="", allow_blank=True, max_length=NOTE_CHARS_MAX)

    def validate_document(self, value: object) -> Document:
        """Read the document, and say where its first mistake stands."""
        try:
            return check(value)
        except Refused as error:
            raise serializers.ValidationError(str(error)) from error


class DashboardChangeSerializer(DashboardDraftSerializer):
    """A document to save in place of another."""

    base = serializers.IntegerField(
        default=None,
        allow_null=True,
        min_value=1,
        max_value=2**31 - 1,
        help_text="keep others' changes since this version",
    )


class DashboardRowSerializer(serializers.ModelSerializer[Dashboard]):
    """A dashboard in a list."""

    tags = serializers.ListField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = Dashboard
        fields = ["uid", "title", "tags", "version", "changed_ms"]


class DashboardSerializer(DashboardRowSerializer):
    """A dashboard with its document."""

    document = serializers.SerializerMethodField()

    class Meta(DashboardRowSerializer.Meta):
        fields = [*DashboardRowSerializer.Meta.fields, "document"]

    def get_document(self, dashboard: Dashboard) -> dict[str, Any]:
        """Return the document of the newest version."""
        return storage.document_of(dashboard).as_dict()


class ListedDashboardSerializer(DashboardRowSerializer):
    """A dashboard in a person's list."""

    starred = serializers.BooleanField(default=False, help_text="by the caller; never by a program")

    class Meta(DashboardRowSerializer.Meta):
        fields = [*DashboardRowSerializer.Meta.fields, "starred"]


class DashboardPageSerializer(serializers.Serializer[Any]):
    """Some dashboards; ``next`` is the cursor of the following page, null on the last one."""

    dashboards = ListedDashboardSerializer(many=True)
    next = serializers.IntegerField(allow_null=True)


class DashboardQuery(NewestFirstQuery):
    """Which dashboards to list."""

    q = serializers.CharField(required=False, default="", allow_blank=True, max_length=TITLE_CHARS_MAX)


class ReportLineSerializer(serializers.Serializer[Any]):
    """What became of a panel or a variable."""

    what = serializers.ChoiceField(choices=["panel", "variable"])
    title = serializers.CharField()
    kind = serializers.CharField(help_text="as Grafana calls it")
    result = serializers.CharField(source="fate", help_text="imported, changed or left out")
    notes = serializers.ListField(child=serializers.CharField(), help_text="each change, or why it is left out")


class DashboardImportSerializer(serializers.Serializer[Any]):
    """What an import saved, or would save; ``uid`` is null if it did not save."""

    uid = serializers.CharField(allow_null=True)
    document = serializers.JSONField()
    report = ReportLineSerializer(many=True)


class DashboardOperation(Operation):
    """An operation on the dashboards of one app."""

    def author(self, note: str = "") -> storage.Author:
        """Return who saves."""
        by = self.actor()
        return storage.Author(by.person, _clock.now_ms(), note, by.name)


class Dashboards(DashboardOperation):
    """The dashboards of an app."""

    @extend_schema(
        operation_id="dashboards",
        parameters=[DashboardQuery],
        responses={200: DashboardPageSerializer, 400: FailureSerializer, **READ},
    )
    def get(self, request: Request, app_id: int) -> Response:
        """Those whose titles hold ``q``, newest first; ``cursor`` goes on where a page ended."""
        app, query = self.app(app_id), self.validated_query(DashboardQuery)
        rows = Dashboard.objects.filter(app=app, title__icontains=query["q"])
        if isinstance(request.user, User):
            rows = stars.with_stars(rows, request.user)
        dashboards, cursor = newest_page(rows, query["cursor"], query["limit"])
        return Response(DashboardPageSerializer({"dashboards": dashboards, "next": cursor}).data)

    @extend_schema(
        operation_id="dashboard_create",
        request=DashboardDraftSerializer,
        responses={201: DashboardSerializer, **_WRITE},
    )
    def post(self, request: Request, app_id: int) -> Response:
        """Create one; for editors."""
        app, body = self.app(app_id, Right.EDIT_DASHBOARDS), self.validated_body(DashboardDraftSerializer)
        dashboard = storage.create(app, body["document"], self.author(body["note"]))
        return answer(dashboard, status.HTTP_201_CREATED)


class OneDashboard(DashboardOperation):
    """One dashboard."""

    @extend_schema(operation_id="dashboard", responses={200: DashboardSerializer, **READ})
    def get(self, request: Request, app_id: int, uid: str) -> Response:
        """It, in its newest version; the header ETag names that."""
        return answer(find(self.app(app_id), uid))

    @extend_schema(
        operation_id="dashboard_save",
        parameters=[_IF_MATCH],
        request=DashboardChangeSerializer,
        responses={200: DashboardSerializer, **EDIT},
    )
    def put(self, request: Request, app_id: int, uid: str) -> Response:
        """Save a version, for editors: with ``If-Match``, or with ``base`` to keep what others changed since."""
        dashboard = find(self.app(app_id, Right.EDIT_DASHBOARDS), uid)
        body = self.validated_body(DashboardChangeSerializer)
        base = body["base"] if body["base"] is not None else version_of(request, dashboard)
        self._save(dashboard, body["document"], self.author(body["note"]), base, is_strict=body["base"] is None)
        return answer(dashboard)

    @extend_schema(operation_id="dashboard_delete", parameters=[_IF_MATCH], responses={204: None, **EDIT})
    def delete(self, request: Request, app_id: int, uid: str) -> Response:
        """Delete it with all its versions; for editors. It needs the header If-Match."""
        dashboard = find(self.app(app_id, Right.EDIT_DASHBOARDS), uid)
        try:
            storage.delete(dashboard, self.author(), base=version_of(request, dashboard))
        except storage.Conflict as conflict:
            raise VersionDiffers from conflict
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _save(
        self, dashboard: Dashboard, document: Document, by: storage.Author, base: int, *, is_strict: bool
    ) -> None:
        try:
            storage.save(dashboard, document, by, base=base, is_strict=is_strict)
        except storage.Conflict as conflict:
            if is_strict:
                raise VersionDiffers from conflict
            raise


class ImportDashboard(DashboardOperation):
    """Takes a dashboard of Grafana's, or a document of ours."""

    parser_classes = [JSONTextParser]

    @extend_schema(
        operation_id="dashboard_import",
        parameters=[_DRY_RUN],
        request={"application/json": OpenApiTypes.OBJECT},
        responses={200: DashboardImportSerializer, 201: DashboardImportSerializer, **_WRITE},
    )
    def post(self, request: Request, app_id: int) -> Response:
        """Save it and report every panel and variable; with ``dry_run``, only report. For editors."""
        app = self.app(app_id, Right.EDIT_DASHBOARDS)
        imported = _read(request.data if isinstance(request.data, str) else "")
        if request.query_params.get("dry_run", "").lower() in ("1", "true", "yes"):
            return Response(_report(imported, None))
        dashboard = storage.create(app, check(imported.document.as_dict()), self.author("imported"))
        return Response(_report(imported, dashboard.uid), status=status.HTTP_201_CREATED)


def find(app: App, uid: str) -> Dashboard:
    """Return a dashboard of the app; 404 if there is none."""
    dashboard = Dashboard.objects.filter(app=app, uid=uid).select_related("app__organisation").first()
    if dashboard is None:
        raise Http404("There is no such dashboard in this app.")
    return dashboard


def version_of(request: Request, dashboard: Dashboard) -> int:
    """Return the version that If-Match names: 428 without one, 412 if it is not the newest."""
    check_version(request, _etag(dashboard))
    return dashboard.version


def answer(dashboard: Dashboard, code: int = status.HTTP_200_OK) -> Response:
    """Answer with a dashboard and the ETag of its version."""
    return Response(DashboardSerializer(dashboard).data, status=code, headers={"ETag": _etag(dashboard)})


def _read(text: str) -> Imported:
    try:
        return importing.read(text)
    except Refused as error:
        raise ParseError(str(error)) from error


def _etag(dashboard: Dashboard) -> str:
    return f'"{dashboard.uid}-{dashboard.version}"'


def _report(imported: Imported, uid: str | None) -> Any:
    value = {"uid": uid, "document": imported.document.as_dict(), "report": imported.lines}
    return DashboardImportSerializer(value).data
