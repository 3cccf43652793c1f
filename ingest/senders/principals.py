"""The principal of a token id, for the broker's questions and the routing keys of its messages.

A token's id is public; that its bearer holds the secret is known from elsewhere (the broker let it in, and lets it use
no other key). The database's answer is cached for ``TOKEN_CACHE_S``, so a revoked token ends within that time, also on
a connection that stays open. Enter by ``of_token_id``.
"""

from django.db import close_old_connections

from spm.accounts.models import Token
from spm.accounts.tokens import Principal
from spm.bounded import TtlMap
from spm.clock import Clock, SystemClock
from spm.limits import TOKEN_CACHE_ITEMS_MAX, TOKEN_CACHE_S

_principals: TtlMap[str, Principal | None] = TtlMap(TOKEN_CACHE_ITEMS_MAX, TOKEN_CACHE_S)
_clock = SystemClock()


def of_token_id(token_id: str, scope: str, clock: Clock = _clock) -> Principal | None:
    """Return the principal of a live token with this scope, whose app is not being deleted; else None."""
    principal = _principals.get_or_load(token_id, clock.monotonic(), lambda: _look_up(token_id))
    return principal if principal is not None and principal.may(scope) else None


def _look_up(token_id: str) -> Principal | None:
    close_old_connections()  # a worker has no request at whose end Django would do it
    live = Token.objects.select_related("app").filter(prefix=token_id, revoked=None, app__going=None)
    token = live.first()
    return None if token is None else Principal(token.app_id, token.app.organisation_id, token.pk, token.scope_set)
