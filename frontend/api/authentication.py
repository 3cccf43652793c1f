"""Authenticates calls of the REST interface: a person's session, or a program's token with the scope ``read``.

Tokens come as ``Authorization: Bearer``, ``Token`` or the password of ``Basic``. An invalid token is an error (401),
never a reason to fall back to the session.
"""

from django.contrib.auth.models import AnonymousUser
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from spm.accounts import tokens
from spm.accounts.tokens import Principal


class Program(AnonymousUser):
    """The user of a request with a token: anonymous, but authenticated."""

    @property
    def is_authenticated(self) -> bool:  # type: ignore[override]  # the base class promises False
        """True, because the token is valid."""
        return True


class TokenAuthentication(BaseAuthentication):
    """Authenticates by token; ignores requests without one."""

    def authenticate(self, request: Request) -> tuple[Program, Principal] | None:
        """Return the program and what its token allows."""
        secret = tokens.from_request(request._request)
        if secret is None:
            return None
        principal = tokens.authenticate(secret, "read")
        if principal is None:
            raise AuthenticationFailed("The token is unknown, revoked, or lacks the scope read.")
        return Program(), principal

    def authenticate_header(self, request: Request) -> str:
        """Turn missing credentials into 401."""
        return 'Bearer realm="spm"'


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # its base is untyped
    """Describes the authentication in the schema."""

    target_class = TokenAuthentication
    name = "token"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        """Describe a bearer token."""
        return {"type": "http", "scheme": "bearer", "description": "A token of an app with the scope read."}
