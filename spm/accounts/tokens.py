"""Tokens: text, issue, check, revoke.

    spm_ID_SECRETCHECK      ID 8, SECRET 32, CHECK 6 characters of base 62; CHECK is the CRC-32 of all before it

The database keeps the prefix ``spm_ID`` and HMAC-SHA256(pepper, text), so neither it nor a backup can be used to send
or read. A text that fails its check never reaches the database. What the database said is remembered for
``TOKEN_CACHE_S`` per process: a revoked token ends within that time. Enter by ``authenticate``.
"""

import base64
import hmac
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from django.conf import settings
from django.db.models import Q
from django.http import HttpRequest

from spm.accounts.models import App, Token
from spm.clock import Clock, SystemClock, moment, random_bytes
from spm.errors import Refused
from spm.limits import TOKEN_CACHE_ITEMS_MAX, TOKEN_CACHE_S, TOKEN_USED_EVERY_MS

SCOPES = ("ingest", "read", "write", "admin")
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_CHARS, _SECRET_CHARS, _CHECK_CHARS = 8, 32, 6
_TEXT_CHARS = len("spm_") + _ID_CHARS + len("_") + _SECRET_CHARS + _CHECK_CHARS


@dataclass(frozen=True, slots=True)
class Principal:
    """Whom a token speaks for: one app, with these scopes."""

    app_id: int
    organisation_id: int
    token_id: int
    scopes: frozenset[str]

    def may(self, scope: str) -> bool:
        """Whether the token has the scope; ``admin`` includes all, ``write`` includes ``read``."""
        return scope in self.scopes or "admin" in self.scopes or (scope == "read" and "write" in self.scopes)


def issue(app: App, *, name: str, scopes: Iterable[str]) -> tuple[Token, str]:
    """Make a token; its secret text is returned here and can never be shown again."""
    wanted = set(scopes)
    if not wanted or not wanted <= set(SCOPES):
        raise Refused("A token needs known scopes", got=sorted(wanted), wanted=" ".join(SCOPES))
    prefix = f"spm_{_random_text(_ID_CHARS)}"
    body = f"{prefix}_{_random_text(_SECRET_CHARS)}"
    secret = body + _check(body)
    ordered = " ".join(scope for scope in SCOPES if scope in wanted)
    token = Token.objects.create(app=app, name=name, scopes=ordered, prefix=prefix, digest=_digest(secret))
    return token, secret


def authenticate(secret: str, scope: str, clock: Clock | None = None) -> Principal | None:
    """The principal of a token that is well formed, known, not revoked, and has the scope; else None."""
    if not well_formed(secret):
        return None
    principal = _cache.find(_digest(secret), secret[: 4 + _ID_CHARS], clock or _clock)
    return principal if principal is not None and principal.may(scope) else None


def well_formed(secret: str) -> bool:
    """Whether the text can be a token at all: shape and check digits, without asking anyone."""
    return (
        len(secret) == _TEXT_CHARS
        and secret.isascii()
        and secret.startswith("spm_")
        and _check(secret[:-_CHECK_CHARS]) == secret[-_CHECK_CHARS:]
    )


def from_request(request: HttpRequest, *, query_parameter: bool = False) -> str | None:
    """The token text of a request: ``Authorization: Bearer|Token`` or the password of ``Basic``.

    ``?token=``, and ``?p=`` beside ``?u=`` as old Influx clients write it, count only where the caller says so
    (ingest): addresses end up in logs and histories.
    """
    said = request.META.get("HTTP_AUTHORIZATION", "")
    if not query_parameter or _kind(said):
        return from_header(said)
    return request.GET.get("token") or request.GET.get("p") or None


def from_header(said: str) -> str | None:
    """The token text of an ``Authorization``; None where it shows none."""
    kind, shown = _kind(said), said.partition(" ")[2].strip()
    if kind == "basic":
        return _basic_password(shown)
    return shown if kind else None


def _kind(said: str) -> str:
    """How an ``Authorization`` shows a token; "" where it does not."""
    kind, _, rest = said.partition(" ")
    return kind.lower() if kind.lower() in ("bearer", "token", "basic") and rest.strip() else ""


def revoke(token: Token, clock: Clock | None = None) -> bool:
    """End a token for ever; false when it had ended before. Other processes follow within ``TOKEN_CACHE_S``."""
    now = moment((clock or _clock).now_ms())
    ended = Token.objects.filter(pk=token.pk, revoked=None).update(revoked=now) == 1
    _cache.clear()
    return ended


def clear_cache() -> None:
    """Forget what the database said about tokens."""
    _cache.clear()


class _Cache:
    """What the database said about a digest, for a few seconds; unknown ones too, so that guessing costs it little."""

    def __init__(self) -> None:
        self._found: dict[bytes, tuple[float, Principal | None]] = {}

    def find(self, digest: bytes, prefix: str, clock: Clock) -> Principal | None:
        now = clock.monotonic()
        known = self._found.get(digest)
        if known is not None and now < known[0]:
            return known[1]
        principal = _look_up(digest, prefix, clock.now_ms())
        if len(self._found) >= TOKEN_CACHE_ITEMS_MAX:
            self._found.clear()
        self._found[digest] = (now + TOKEN_CACHE_S, principal)
        return principal

    def clear(self) -> None:
        self._found.clear()


_cache = _Cache()
_clock = SystemClock()


def _look_up(digest: bytes, prefix: str, now_ms: int) -> Principal | None:
    token = Token.objects.select_related("app").filter(prefix=prefix, revoked=None, app__going=None).first()
    if token is None or not hmac.compare_digest(bytes(token.digest), digest):
        return None
    _note_use(token, now_ms)
    return Principal(token.app_id, token.app.organisation_id, token.pk, token.scope_set)


def _note_use(token: Token, now_ms: int) -> None:
    """Write the time of use, at most once in ``TOKEN_USED_EVERY_MS``; of several processes only one writes."""
    before = moment(now_ms - TOKEN_USED_EVERY_MS)
    if token.last_used is None or token.last_used < before:
        due = Token.objects.filter(Q(last_used=None) | Q(last_used__lt=before), pk=token.pk)
        due.update(last_used=moment(now_ms))


def _digest(secret: str) -> bytes:
    made = _peppered(settings.SPM_PEPPER).copy()  # a new one costs ten times that
    made.update(secret.encode())
    return made.digest()


@lru_cache(maxsize=4)
def _peppered(text: str) -> hmac.HMAC:
    return hmac.new(text.encode(), digestmod="sha256")


def _basic_password(encoded: str) -> str | None:
    try:
        _, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except ValueError:  # no base 64, or no UTF-8 in it
        return None
    return password if colon and password else None


def _random_text(count: int) -> str:
    """``count`` characters of base 62, each equally likely: bytes from 248 up are thrown away."""
    found = ""
    while len(found) < count:
        found += "".join(_DIGITS[byte % 62] for byte in random_bytes(count) if byte < 248)
    return found[:count]


def _check(body: str) -> str:
    number, text = zlib.crc32(body.encode()), ""
    for _ in range(_CHECK_CHARS):
        number, digit = divmod(number, 62)
        text = _DIGITS[digit] + text
    return text
