"""Rule files of an app by HTTP: list, read, put and delete them; ``?dry_run=true`` shows what would change."""

from typing import Any

from django.http import Http404, HttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from alerts.rulefiles import apply
from alerts.rulefiles.apply import Author
from alerts.rulefiles.export import export_file
from alerts.rulefiles.limits import FILE_BYTES_MAX
from frontend.api.base import FailureSerializer, Operation
from spm.accounts.organisations.rights import Right
from spm.clock import SystemClock

_clock = SystemClock()
_READ = {401: FailureSerializer, 404: FailureSerializer}
_WRITE = {**_READ, 400: FailureSerializer, 403: FailureSerializer, 422: FailureSerializer}
_DRY_RUN = OpenApiParameter("dry_run", OpenApiTypes.BOOL, description="only say what would change")
_YAML = {"application/yaml": OpenApiTypes.STR}


class TextParser(BaseParser):
    """Takes a body of any type as text, up to the size that a rule file may have."""

    media_type = "*/*"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """Return the text; a longer one is read one byte over the limit, and refused by its reader."""
        try:
            return str(stream.read(FILE_BYTES_MAX + 1).decode())
        except UnicodeDecodeError as error:
            raise ParseError("the body is not UTF-8") from error


class RuleFilesSerializer(serializers.Serializer[Any]):
    """The names of an app's rule files."""

    files = serializers.ListField(child=serializers.CharField())


class ImportSerializer(serializers.Serializer[Any]):
    """What the import of a file changed, or would change."""

    file = serializers.CharField()
    summary = serializers.CharField(help_text="3 new, 0 changed, 1 gone; or: no change")
    diff = serializers.SerializerMethodField()
    notes = serializers.ListField(child=serializers.CharField(), help_text="what the file says without effect")
    dry_run = serializers.BooleanField(default=False)

    def get_diff(self, result: Any) -> list[str]:
        """Return a line for each change: + new, ~ changed (fields follow), - gone."""
        return [line for change in result.changes for line in change.lines()]


class RuleFiles(Operation):
    """The rule files of an app."""

    @extend_schema(operation_id="rule_files", responses={200: RuleFilesSerializer, **_READ})
    def get(self, request: Request, app_id: int) -> Response:
        """Their names."""
        return Response({"files": apply.file_names(self.app(app_id))})


class OneRuleFile(Operation):
    """One rule file."""

    parser_classes = [TextParser]

    @extend_schema(
        operation_id="rule_file", responses={200: OpenApiResponse(OpenApiTypes.STR, "the file, as YAML"), **_READ}
    )
    def get(self, request: Request, app_id: int, name: str) -> HttpResponseBase:
        """The file as YAML."""
        text = export_file(self.app(app_id), name)
        if text is None:
            raise Http404("There is no such rule file in this app.")
        return HttpResponse(text, content_type="application/yaml")

    @extend_schema(
        operation_id="rule_file_put",
        parameters=[_DRY_RUN],
        request=_YAML,
        responses={200: ImportSerializer, **_WRITE},
    )
    def put(self, request: Request, app_id: int, name: str) -> Response:
        """Bring the app's rules in step with the file of the body; for editors. The same file again changes nothing."""
        app, by, dry_run = self.app(app_id, Right.IMPORT_RULES), self.actor(), _is_dry_run(request)
        author, text = Author(by.person, by.name), request.data if isinstance(request.data, str) else ""
        [result] = apply.import_files(app, {name: text}, by=author, now_ms=_clock.now_ms(), dry_run=dry_run)
        return Response({**ImportSerializer(result).data, "dry_run": dry_run})

    @extend_schema(operation_id="rule_file_delete", parameters=[_DRY_RUN], responses={200: ImportSerializer, **_WRITE})
    def delete(self, request: Request, app_id: int, name: str) -> Response:
        """Delete the rules of the file; for editors."""
        app, by, dry_run = self.app(app_id, Right.IMPORT_RULES), self.actor(), _is_dry_run(request)
        if name not in apply.file_names(app):
            raise Http404("There is no such rule file in this app.")
        author = Author(by.person, by.name)
        result = apply.remove_file(app, name, by=author, now_ms=_clock.now_ms(), dry_run=dry_run)
        return Response({**ImportSerializer(result).data, "dry_run": dry_run})


def _is_dry_run(request: Request) -> bool:
    return request.query_params.get("dry_run", "").lower() in ("1", "true", "yes")
