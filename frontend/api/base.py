"""The base of every operation of the REST interface: who may call it, which app it works on, how failures are answered.

A failure is ``{"error": text}``, for a form also with what is wrong with each field. Its status: 400 malformed, 401 not
authenticated, 403 role too low, 404 foreign or missing, 409 refused by a rule, 422 too large, 429 too many at once, 503
store unavailable or out of time. A caller is a person with a session, or a program with a token of the scope ``read``.
What either may do says the table ``spm.accounts.organisations.rights``.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import orjson
from django.contrib.auth.models import AnonymousUser, User
from django.db.models import Model, QuerySet
from django.http import Http404, QueryDict
from django.shortcuts import get_object_or_404
from drf_spectacular.authentication import SessionScheme
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework import serializers, status
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import (
    APIException,
    AuthenticationFailed,
    ParseError,
    PermissionDenied,
    ValidationError,
)
from rest_framework.parsers import JSONParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.settings import api_settings
from rest_framework.views import APIView

from rollups.services.retractions import Actor
from spm.accounts import tokens
from spm.accounts.access import app_of_person, app_of_token, has_right, require_app
from spm.accounts.models import App, Token
from spm.accounts.organisations.rights import Right
from spm.accounts.tokens import Principal
from spm.errors import SpmError
from spm.limits import RETRY_AFTER_S
from spm.web.error_status import DATABASE_AWAY, RETRYABLE, status_of, text_of

Row = TypeVar("Row", bound=Model)
_ROW_NUMBER_MAX = (1 << 63) - 1


class FailureSerializer(serializers.Serializer[dict[str, Any]]):
    """The body of every failure."""

    error = serializers.CharField()


def describe_refusals(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """Add to every operation what is refused before or while its input is read; a hook of the schema.

    A body may be too large or of an unknown type, an input malformed, an address longer than the server reads.
    """
    failure = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Failure"}}}, "description": ""}
    too_long = {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "the address is too long"}
    for methods in result["paths"].values():
        for operation in methods.values():
            refusals = {"413": failure, "415": failure} if "requestBody" in operation else {}
            if "requestBody" in operation or any(each["in"] == "query" for each in operation.get("parameters", ())):
                refusals |= {"400": failure, "414": too_long}
            operation["responses"] = refusals | operation["responses"]
    return result


class VersionDiffers(APIException):
    """What is to be changed is no longer what the caller saw."""

    status_code = status.HTTP_412_PRECONDITION_FAILED
    default_detail = "It has changed since: read it again, and send the new ETag as If-Match."


class VersionNeeded(APIException):
    """A change without the version that it rests on."""

    status_code = status.HTTP_428_PRECONDITION_REQUIRED
    default_detail = "Send If-Match with the ETag as you read it."


class Program(AnonymousUser):
    """The user of a request with a token: anonymous, but authenticated."""

    @property
    def is_authenticated(self) -> bool:  # type: ignore[override]  # the base class promises False
        """True, because the token is valid."""
        return True


class TokenAuthentication(BaseAuthentication):
    """Authenticates by token (``Authorization: Bearer``, ``Token``, or the password of ``Basic``), if there is one.

    An invalid token is an error (401), never a reason to fall back to the session.
    """

    scope = "read"

    def authenticate(self, request: Request) -> tuple[Program, Principal] | None:
        """Return the program and what its token allows."""
        secret = tokens.from_request(request._request)
        if secret is None:
            return None
        principal = tokens.authenticate(secret, self.scope)
        if principal is None:
            raise AuthenticationFailed(f"The token is unknown, revoked, or lacks the scope {self.scope}.")
        return Program(), principal

    def authenticate_header(self, request: Request) -> str:
        """Turn missing credentials into 401."""
        return 'Bearer realm="spm"'


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # its base is untyped
    """Describes the authentication in the schema."""

    target_class = TokenAuthentication
    match_subclasses = True
    name = "token"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        """Describe a bearer token."""
        return {"type": "http", "scheme": "bearer", "description": "A token of an app with the scope read."}


class SafeJSONParser(JSONParser):
    """Parses JSON; nesting deeper than the interpreter can follow is malformed, too."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """Return the value."""
        try:
            return super().parse(stream, media_type, parser_context)
        except RecursionError as error:
            raise ParseError("JSON parse error - nested too deeply") from error


class ColumnsRenderer(BaseRenderer):
    """Writes JSON with orjson, arrays as lists: NaN and the infinities, which JSON lacks, become null."""

    media_type = "application/json"
    format = "json"
    charset = None

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        """Return the bytes; what is wrong with items of a list stands under their numbers."""
        return orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)


class PersonAuthentication(SessionAuthentication):
    """A session; its check of origin takes the token from the header alone, since a body has no form's fields."""

    def enforce_csrf(self, request: Any) -> None:
        """Check the header ``X-CSRFToken``; what a body says of its type, a form's too, is not looked at."""
        without_form = copy.copy(request._request)
        without_form.POST = QueryDict()
        super().enforce_csrf(without_form)


class PersonScheme(SessionScheme):  # type: ignore[no-untyped-call]  # its base is untyped
    """Names sessions in the schema."""

    target_class = "frontend.api.base.PersonAuthentication"


class Operation(APIView):
    """An operation on one app."""

    authentication_classes = [TokenAuthentication, PersonAuthentication]
    parser_classes = [SafeJSONParser]

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Check who calls; 404 for an address that names something with a NUL, which PostgreSQL does not store."""
        super().initial(request, *args, **kwargs)
        if any(isinstance(value, str) and "\0" in value for value in kwargs.values()):
            raise Http404("The address names nothing: no name holds a NUL.")

    def app(self, app_id: int | None, right: Right = Right.SEE_APP) -> App:
        """Return the app the caller means; 404 for a foreign one, 403 if the role or the token's scope is too low."""
        principal = self.request.auth
        if isinstance(principal, Principal):
            app = app_of_token(principal, app_id)
            if not self.may(app, right):
                needed = f"a token with the scope {right.scope}" if right.scope else "an owner in person: no token may"
                raise PermissionDenied(f"To {right.text}, this needs {needed}.")
            return app
        assert isinstance(self.request.user, User), "BUG: an operation ran for nobody"
        app = app_of_person(self.request.user, app_id)
        return app if right is Right.SEE_APP else require_app(self.request.user, app.pk, right)

    def may(self, app: App, right: Right) -> bool:
        """Whether the caller may do this in an app that they see."""
        if isinstance(self.request.auth, Principal):
            return right.scope is not None and self.request.auth.may(right.scope)
        return has_right(self.request.user, app, right)

    def actor(self) -> Actor:
        """Return who calls, for the log."""
        origin = str(self.request.META.get("REMOTE_ADDR", ""))
        if isinstance(self.request.auth, Principal):
            token = Token.objects.filter(pk=self.request.auth.token_id).first()
            return Actor(f"token {token.name}" if token else "a token", origin)
        assert isinstance(self.request.user, User), "BUG: an operation ran for nobody"
        return Actor(self.request.user.get_username(), origin, self.request.user)

    def validated_body(self, form: type[serializers.Serializer[Any]]) -> dict[str, Any]:
        """Validate the body and return its fields."""
        return _validated(form, self.request.data)

    def validated_query(self, form: type[serializers.Serializer[Any]]) -> dict[str, Any]:
        """Validate the parameters of the address and return their fields."""
        return _validated(form, self.request.query_params)

    def handle_exception(self, exc: Exception) -> Response:
        """Answer our own errors by the table of statuses, and the framework's errors in the same form."""
        if isinstance(exc, (SpmError, *DATABASE_AWAY)):
            code = status_of(exc)
            headers = {"Retry-After": str(RETRY_AFTER_S)} if code in RETRYABLE else {}
            return Response({"error": text_of(exc)}, status=code, headers=headers, exception=True)
        response = super().handle_exception(exc)
        if isinstance(response.data, dict) and "detail" in response.data:
            response.data = {"error": str(response.data["detail"])}
        elif isinstance(exc, ValidationError):
            fields = response.data if isinstance(response.data, dict) else {}
            response.data = {"error": "; ".join(_sentences(response.data)), **fields}
        return response


def _sentences(detail: Any, place: str = "") -> Iterator[str]:
    """Yield what is wrong with each field of a form, after its name."""
    if isinstance(detail, Mapping):
        for name, each in detail.items():
            inner = place if name == api_settings.NON_FIELD_ERRORS_KEY else f"{place}.{name}" if place else str(name)
            yield from _sentences(each, inner)
    elif isinstance(detail, list):
        for each in detail:
            yield from _sentences(each, place)
    else:
        yield f"{place}: {detail}" if place else str(detail)


def row_of(rows: QuerySet[Row], number: int) -> Row:
    """Return the row that an address names; 404 if there is none, also for a number that no database has."""
    return get_object_or_404(rows, pk=min(number, _ROW_NUMBER_MAX))


def check_version(request: Request, etag: str) -> None:
    """Check that ``If-Match`` names the version with this ETag; raises ``VersionNeeded`` and ``VersionDiffers``.

    A weak tag counts, although RFC 9110 compares strong ones: what is compressed leaves with the weak form of its tag.
    """
    wanted = request.headers.get("If-Match", "").strip()
    if not wanted:
        raise VersionNeeded
    if wanted != "*" and etag not in [each.strip().removeprefix("W/") for each in wanted.split(",")]:
        raise VersionDiffers


def _validated(form: type[serializers.Serializer[Any]], data: Any) -> dict[str, Any]:
    bound = form(data=data)
    bound.is_valid(raise_exception=True)
    return dict(bound.validated_data)
