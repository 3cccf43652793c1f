"""Whom a token id stands for: how the broker's questions and the keys of its messages become a principal.

A token's id is public; that its bearer holds the secret is known from elsewhere (the broker let it in, and lets it use
no other key). What the database said is remembered for ``TOKEN_CACHE_S``, so a revoked token ends within that time,
also on a connection that stays open. Enter by ``of_token_id``.
"""

from django.db import close_old_connections

from spm.accounts.models import Token
from spm.accounts.tokens import Principal
from spm.clock import Clock, SystemClock
from spm.limits import TOKEN_CACHE_ITEMS_MAX, TOKEN_CACHE_S

_found: dict[str, tuple[float, Principal | None]] = {}  # a cache, bounded by TOKEN_CACHE_ITEMS_MAX
_clock = SystemClock()


def of_token_id(token_id: str, scope: str, clock: Clock = _clock) -> Principal | None:
    """The principal of a token that is not revoked, whose app is there, and that has the scope; else None."""
    now = clock.monotonic()
    known = _found.get(token_id)
    if known is None or now >= known[0]:
        if len(_found) >= TOKEN_CACHE_ITEMS_MAX:
            _found.clear()
        known = _found[token_id] = (now + TOKEN_CACHE_S, _look_up(token_id))
    principal = known[1]
    return principal if principal is not None and principal.may(scope) else None


def forget() -> None:
    """Ask the database again about every token."""
    _found.clear()


def _look_up(token_id: str) -> Principal | None:
    close_old_connections()  # a worker has no request at whose end Django would do it
    live = Token.objects.select_related("app").filter(prefix=token_id, revoked=None, app__going=None)
    token = live.first()
    return None if token is None else Principal(token.app_id, token.app.organisation_id, token.pk, token.scope_set)
