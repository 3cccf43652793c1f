"""What every operation shares: who may call, which app is meant, how failures are answered.

Failures are ``{"error": text}`` with the status of their kind: 400 malformed, 401 nobody, 403 role too low, 404 foreign
or missing, 422 too large, 503 store away.
"""

from typing import Any

import orjson
from django.contrib.auth.models import User
from rest_framework import serializers
from rest_framework.authentication import SessionAuthentication
from rest_framework.renderers import BaseRenderer
from rest_framework.response import Response
from rest_framework.views import APIView

from frontend.api.authentication import TokenAuthentication
from spm.accounts.access import app_of_person, app_of_token
from spm.accounts.models import App
from spm.accounts.tokens import Principal
from spm.errors import BadQuery, QueryTooLarge, SpmError
from spm.limits import RETRY_AFTER_S

_STATUS: tuple[tuple[type[SpmError], int], ...] = ((BadQuery, 400), (QueryTooLarge, 422), (SpmError, 503))


class FailureSerializer(serializers.Serializer[dict[str, Any]]):
    """The body of every failure."""

    error = serializers.CharField()


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

    def app(self, app_id: int | None) -> App:
        """The app the caller means, if it may read it; 404 otherwise."""
        if isinstance(self.request.auth, Principal):
            return app_of_token(self.request.auth, app_id)
        assert isinstance(self.request.user, User), "BUG: an operation ran for nobody"
        return app_of_person(self.request.user, app_id)

    def handle_exception(self, exc: Exception) -> Response:
        """Our own errors by their kind; the others as the framework does, under the same name."""
        if isinstance(exc, SpmError):
            status = next(status for kind, status in _STATUS if isinstance(exc, kind))
            headers = {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else {}
            return Response({"error": str(exc)}, status=status, headers=headers, exception=True)
        response = super().handle_exception(exc)
        if isinstance(response.data, dict) and "detail" in response.data:
            response.data = {"error": str(response.data["detail"])}
        return response
