"""What every operation shares: who may call, which app is meant, how failures are answered.

Failures are ``{"error": text}`` with the status of their kind: 400 malformed, 401 nobody, 403 role too low, 404 foreign
or missing, 409 refused by a rule, 422 too large, 429 too many at once, 503 store away or out of time. What a role may
do as a person, a token with the scope of ``_SCOPE`` may do; what only owners may, no token may.
"""

from typing import Any

import orjson
from django.contrib.auth.models import User
from rest_framework import serializers
from rest_framework.authentication import SessionAuthentication
from rest_framework.exceptions import ParseError, PermissionDenied
from rest_framework.parsers import JSONParser
from rest_framework.renderers import BaseRenderer
from rest_framework.response import Response
from rest_framework.views import APIView

from frontend.api.authentication import TokenAuthentication
from rollups.services.retractions import Actor
from spm.accounts.access import app_of_person, app_of_token, require_app
from spm.accounts.models import App, Role, Token
from spm.accounts.tokens import Principal
from spm.errors import (
    BadQuery,
    LimitExceeded,
    QueryCancelled,
    QueryFailed,
    QueryRefused,
    QueryTooLarge,
    Refused,
    SpmError,
)
from spm.limits import RETRY_AFTER_S

_STATUS: tuple[tuple[type[SpmError], int], ...] = (
    (BadQuery, 400),
    (QueryTooLarge, 422),
    (QueryFailed, 422),
    (LimitExceeded, 422),
    (QueryRefused, 429),
    (QueryCancelled, 499),  # nobody reads the answer
    (Refused, 409),
    (SpmError, 503),
)
_COME_AGAIN = (429, 503)
_SCOPE: dict[str, str] = {Role.VIEWER: "read", Role.EDITOR: "write", Role.ADMIN: "admin"}


class FailureSerializer(serializers.Serializer[dict[str, Any]]):
    """The body of every failure."""

    error = serializers.CharField()


class Body(JSONParser):
    """JSON that a sender nested deeper than this program can follow is malformed, too."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """The value."""
        try:
            return super().parse(stream, media_type, parser_context)
        except RecursionError as error:
            raise ParseError("JSON parse error - nested too deeply") from error


class Columns(BaseRenderer):
    """JSON by orjson: NaN and the infinities, which JSON cannot say, become null."""

    media_type = "application/json"
    format = "json"
    charset = None

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        """The bytes."""
        return orjson.dumps(data)


class Operation(APIView):
    """One operation on one app."""

    authentication_classes = [TokenAuthentication, SessionAuthentication]
    parser_classes = [Body]

    def app(self, app_id: int | None, role: str = Role.VIEWER) -> App:
        """The app the caller means; 404 for one of others, 403 where the role (or the token's scope) is too low."""
        principal = self.request.auth
        if isinstance(principal, Principal):
            app = app_of_token(principal, app_id)
            if role not in _SCOPE or not principal.may(_SCOPE[role]):
                wanted = f"a token with the scope {_SCOPE[role]}" if role in _SCOPE else "an owner in person"
                raise PermissionDenied(f"This needs {wanted}.")
            return app
        assert isinstance(self.request.user, User), "BUG: an operation ran for nobody"
        found = app_of_person(self.request.user, app_id)
        return found if role == Role.VIEWER else require_app(self.request.user, found.pk, role)

    def actor(self) -> Actor:
        """Who calls, for the log."""
        origin = str(self.request.META.get("REMOTE_ADDR", ""))
        if isinstance(self.request.auth, Principal):
            token = Token.objects.filter(pk=self.request.auth.token_id).first()
            return Actor(f"token {token.name}" if token else "a token", origin)
        assert isinstance(self.request.user, User), "BUG: an operation ran for nobody"
        return Actor(self.request.user.get_username(), origin, self.request.user)

    def asked(self, form: type[serializers.Serializer[Any]]) -> dict[str, Any]:
        """The body, checked."""
        body = form(data=self.request.data)
        body.is_valid(raise_exception=True)
        return dict(body.validated_data)

    def handle_exception(self, exc: Exception) -> Response:
        """Our own errors by their kind; the others as the framework does, under the same name."""
        if isinstance(exc, SpmError):
            status = next(status for kind, status in _STATUS if isinstance(exc, kind))
            headers = {"Retry-After": str(RETRY_AFTER_S)} if status in _COME_AGAIN else {}
            return Response({"error": str(exc)}, status=status, headers=headers, exception=True)
        response = super().handle_exception(exc)
        if isinstance(response.data, dict) and "detail" in response.data:
            response.data = {"error": str(response.data["detail"])}
        return response
