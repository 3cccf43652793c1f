"""The tokens of an app: list, create, rotate, revoke. For editors; those with the scope ``admin`` for admins.

A program does this with a token of the scope ``write``, or ``admin`` for admin tokens.
"""

from typing import Any

from django.contrib.auth.models import User
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from frontend.api.base import FailureSerializer, Operation, row_of
from spm.accounts.models import App, Token
from spm.accounts.organisations.limits import TOKEN_DAYS_MAX
from spm.accounts.organisations.rights import Right, token_right
from spm.accounts.services import issue_token, revoke_token, rotate_token
from spm.accounts.tokens import SCOPES

_READ = {401: FailureSerializer, 403: FailureSerializer, 404: FailureSerializer}
_WRITE = {**_READ, 400: FailureSerializer, 409: FailureSerializer}


class TokenSerializer(serializers.ModelSerializer[Token]):
    """A token that works, without its secret."""

    scopes = serializers.SerializerMethodField()
    created_by = serializers.CharField(source="created_by.username", default=None, allow_null=True)

    class Meta:
        model = Token
        fields = ["id", "name", "prefix", "scopes", "created", "created_by", "expires", "last_used"]

    def get_scopes(self, token: Token) -> list[str]:
        """The scopes one by one."""
        return token.scopes.split()


class NewTokenSerializer(serializers.Serializer[dict[str, Any]]):
    """A token to create."""

    name = serializers.CharField(max_length=120)
    scopes = serializers.ListField(child=serializers.ChoiceField(SCOPES), min_length=1, max_length=len(SCOPES))
    days = serializers.IntegerField(
        min_value=1, max_value=TOKEN_DAYS_MAX, default=365, allow_null=True, help_text="null: for ever"
    )


class SecretSerializer(serializers.Serializer[Any]):
    """A new token with its secret, which is shown this once."""

    token = TokenSerializer()
    secret = serializers.CharField()


class TokenOperation(Operation):
    """An operation on tokens, by a person or by a program with a token of its own."""

    def caller(self) -> tuple[User | None, str]:
        """The person who calls, or None and the name of the program."""
        actor = self.actor()
        return actor.person, actor.name

    def token(self, app_id: int, number: int) -> Token:
        """The app's token of this number, if the caller may manage it."""
        app: App = self.app(app_id, Right.MANAGE_TOKENS)
        token = row_of(Token.objects.filter(app=app).select_related("app__organisation"), number)
        self.app(app_id, token_right(token.scope_set))
        return token


class Tokens(TokenOperation):
    """The tokens of an app."""

    @extend_schema(operation_id="tokens", responses={200: TokenSerializer(many=True), **_READ})
    def get(self, request: Request, app_id: int) -> Response:
        """Those that are not revoked, newest first; for editors."""
        rows = self.app(app_id, Right.MANAGE_TOKENS).tokens.filter(revoked=None).select_related("created_by")
        return Response(TokenSerializer(rows, many=True).data)

    @extend_schema(operation_id="token_create", request=NewTokenSerializer, responses={201: SecretSerializer, **_WRITE})
    def post(self, request: Request, app_id: int) -> Response:
        """Create one; for editors, with the scope admin for admins."""
        self.app(app_id, Right.MANAGE_TOKENS)
        body = self.validated_body(NewTokenSerializer)
        app = self.app(app_id, token_right(body["scopes"]))
        person, program = self.caller()
        token, secret = issue_token(person, app, **body, program=program)
        answer = SecretSerializer({"token": token, "secret": secret}).data
        return Response(answer, status=status.HTTP_201_CREATED, headers={"Cache-Control": "no-store"})


class OneToken(TokenOperation):
    """One token."""

    @extend_schema(operation_id="token", responses={200: TokenSerializer, **_READ})
    def get(self, request: Request, app_id: int, number: int) -> Response:
        """It, without its secret; for those who may revoke it."""
        return Response(TokenSerializer(self.token(app_id, number)).data)

    @extend_schema(operation_id="token_revoke", request=None, responses={204: None, **_WRITE})
    def delete(self, request: Request, app_id: int, number: int) -> Response:
        """Revoke it; it stops working within five seconds."""
        person, program = self.caller()
        revoke_token(person, self.token(app_id, number), program=program)
        return Response(status=status.HTTP_204_NO_CONTENT)


class RotateToken(TokenOperation):
    """A token's successor."""

    @extend_schema(operation_id="token_rotate", request=None, responses={201: SecretSerializer, **_WRITE})
    def post(self, request: Request, app_id: int, number: int) -> Response:
        """Create the successor; the token works for 24 hours more."""
        person, program = self.caller()
        token, secret = rotate_token(person, self.token(app_id, number), program=program)
        answer = SecretSerializer({"token": token, "secret": secret}).data
        return Response(answer, status=status.HTTP_201_CREATED, headers={"Cache-Control": "no-store"})
