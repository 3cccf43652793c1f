"""Tokens: text, issue, check, revoke.

    spm_ID_SECRETCHECK      ID 8, SECRET 32, CHECK 6 characters of base 62; CHECK is the CRC-32 of all before it

The database stores the prefix ``spm_ID`` and HMAC-SHA256(pepper, text), so neither it nor a backup can be used to send
or read. A text that fails its check never reaches the database. Each process caches the database's answers for
``TOKEN_CACHE_S``: a token that is revoked or expires stops working within that time. How often tokens of nobody are
looked up is bounded (``TokenLookups``). Enter by ``authenticate``.
"""

import base64
import hmac
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest

from spm.accounts.bulk import execute_many, time_parameter
from spm.accounts.logins.token_lookups import TokenLookups
from spm.accounts.models import App, Token
from spm.accounts.note_writer import NoteQueue, process_writer
from spm.bounded import TtlMap
from spm.clock import Clock, SystemClock, moment, random_bytes
from spm.errors import Refused
from spm.limits import TOKEN_CACHE_ITEMS_MAX, TOKEN_CACHE_S, TOKEN_USED_EVERY_MS, TOKENS_NOTED_PER_APP_MAX

SCOPES = ("ingest", "read", "events", "write", "admin")
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_CHARS, _SECRET_CHARS, _CHECK_CHARS = 8, 32, 6
_TEXT_CHARS = len("spm_") + _ID_CHARS + len("_") + _SECRET_CHARS + _CHECK_CHARS


@dataclass(frozen=True, slots=True)
class Principal:
    """The access that a token gives: to one app, with these scopes."""

    app_id: int
    organisation_id: int
    token_id: int
    scopes: frozenset[str]

    def may(self, scope: str) -> bool:
        """Whether the token has the scope; ``admin`` includes all, ``write`` includes ``read`` and ``events``."""
        is_included = scope in ("read", "events") and "write" in self.scopes
        return scope in self.scopes or "admin" in self.scopes or is_included


def issue(
    app: App,
    *,
    name: str,
    scopes: Iterable[str],
    created_by: User | None = None,
    expires: datetime | None = None,
) -> tuple[Token, str]:
    """Create a token; its secret text is returned here and can never be shown again."""
    wanted = set(scopes)
    if not wanted or not wanted <= set(SCOPES):
        raise Refused("A token needs known scopes", got=sorted(wanted), wanted=" ".join(SCOPES))
    prefix = f"spm_{_random_text(_ID_CHARS)}"
    body = f"{prefix}_{_random_text(_SECRET_CHARS)}"
    secret = body + _check(body)
    digest = _digest(secret)
    _lookups.add(digest)
    ordered = " ".join(scope for scope in SCOPES if scope in wanted)
    token = Token.objects.create(
        app=app,
        name=name,
        scopes=ordered,
        prefix=prefix,
        digest=digest,
        created_by=created_by,
        expires=expires,
    )
    return token, secret


def authenticate(secret: str, scope: str, clock: Clock | None = None) -> Principal | None:
    """The principal of a token that is well formed, known, not revoked, and has the scope; else None."""
    if not well_formed(secret):
        return None
    clock, digest = clock or _clock, _digest(secret)
    now_s = clock.monotonic()
    try:
        principal = _remembered(digest, now_s)
    except KeyError:
        if not _lookups.may_look_up(digest, now_s):
            return None  # nor remembered: another process may make this token now
        principal = _look_up(digest, secret[: 4 + _ID_CHARS], clock.now_ms())
        if principal is None:
            _lookups.found_nobody(now_s)
        (_unknown if principal is None else _principals).get_or_load(digest, now_s, lambda: principal)
    return principal if principal is not None and principal.may(scope) else None


def authenticate_from_cache(secret: str, scope: str, clock: Clock | None = None) -> Principal | None:
    """As ``authenticate``, without a look into the database; ``KeyError`` where that is needed. For the event loop."""
    digest = digest_of(secret)
    return None if digest is None else principal_from_cache(digest, scope, clock)


def digest_of(secret: str) -> bytes | None:
    """The keyed hash of a token, by which caches may know it; None for a text that is no token."""
    return _digest(secret) if well_formed(secret) else None


def principal_from_cache(digest: bytes, scope: str, clock: Clock | None = None) -> Principal | None:
    """As ``authenticate_from_cache``, of a token's hash."""
    principal = _remembered(digest, (clock or _clock).monotonic())
    return principal if principal is not None and principal.may(scope) else None


def last_principal(secret: str) -> Principal | None:
    """The principal that a token had when it was last looked up here, for choosing a queue: it proves nothing."""
    return _principals.last(_digest(secret)) if well_formed(secret) else None


def random_secret() -> str:
    """A secret of 190 bits, for the link of a mail."""
    return _random_text(_SECRET_CHARS)


def keyed_digest(secret: str) -> bytes:
    """The hash of a secret, keyed with the pepper: what the database may store of it."""
    return _digest(secret)


def well_formed(secret: str) -> bool:
    """Whether the text has the form and the check digits of a token; the database is not read."""
    return (
        len(secret) == _TEXT_CHARS
        and secret.isascii()
        and secret.startswith("spm_")
        and _check(secret[:-_CHECK_CHARS]) == secret[-_CHECK_CHARS:]
    )


def from_request(request: HttpRequest, *, query_parameter: bool = False) -> str | None:
    """The token text of a request: ``Authorization: Bearer|Token`` or the password of ``Basic``.

    ``?token=``, and ``?p=`` beside ``?u=`` as old Influx clients write it, count only with ``query_parameter``
    (ingest): URLs end up in logs and histories.
    """
    header = request.META.get("HTTP_AUTHORIZATION", "")
    if not query_parameter or scheme_of(header):
        return from_header(header)
    return request.GET.get("token") or request.GET.get("p") or None


def from_header(header: str) -> str | None:
    """The token text of an ``Authorization`` header; None where it has none."""
    kind, credentials = scheme_of(header), header.partition(" ")[2].strip()
    if kind == "basic":
        return _basic_password(credentials)
    return credentials if kind else None


def scheme_of(header: str) -> str:
    """The scheme of an ``Authorization`` header with a token; "" for any other header."""
    kind, _, rest = header.partition(" ")
    return kind.lower() if kind.lower() in ("bearer", "token", "basic") and rest.strip() else ""


def revoke(token: Token, clock: Clock | None = None) -> bool:
    """Revoke a token; false when it was revoked before. Other processes follow within ``TOKEN_CACHE_S``."""
    now = moment((clock or _clock).now_ms())
    is_revoked = Token.objects.filter(pk=token.pk, revoked=None).update(revoked=now) == 1
    forget_tokens()
    return is_revoked


def forget_tokens() -> None:
    """Look every token up anew."""
    _principals.clear()
    _unknown.clear()


def _remembered(digest: bytes, now_s: float) -> Principal | None:
    """The principal of a hash, or None for one that is known to be nobody's; ``KeyError`` where neither is known."""
    try:
        return _principals.valid(digest, now_s)
    except KeyError:
        return _unknown.valid(digest, now_s)


# By digest, for a few seconds. Unknown ones too, so that guessing costs the database little; they lie apart, since
# anybody can send as many as they like, and none of them may push out one that is valid.
_principals: TtlMap[bytes, Principal | None] = TtlMap(TOKEN_CACHE_ITEMS_MAX, TOKEN_CACHE_S)
_unknown: TtlMap[bytes, Principal | None] = TtlMap(TOKEN_CACHE_ITEMS_MAX, TOKEN_CACHE_S)
_clock = SystemClock()
_WRITE_USE = "UPDATE accounts_token SET last_used = %s WHERE id = %s AND (last_used IS NULL OR last_used < %s)"


def _read_after(token_id: int) -> Iterable[tuple[int, bytes]]:
    rows = Token.objects.filter(pk__gt=token_id, revoked=None).order_by("pk")
    return ((number, bytes(digest)) for number, digest in rows.values_list("pk", "digest").iterator())


_lookups = TokenLookups(_read_after)


def _look_up(digest: bytes, prefix: str, now_ms: int) -> Principal | None:
    token = Token.objects.select_related("app").filter(prefix=prefix, revoked=None, app__going=None).first()
    if token is None or not hmac.compare_digest(bytes(token.digest), digest):
        return None
    if token.expires is not None and token.expires <= moment(now_ms):
        return None
    _note_use(token, now_ms)
    return Principal(token.app_id, token.app.organisation_id, token.pk, token.scope_set)


def _note_use(token: Token, now_ms: int) -> None:
    """Have the time of use written, at most once in ``TOKEN_USED_EVERY_MS``."""
    is_due = token.last_used is None or token.last_used < moment(now_ms - TOKEN_USED_EVERY_MS)
    if is_due and _uses.put(token.app_id, token.pk, now_ms):
        process_writer.wake()


def _write_uses(uses: Mapping[int, Mapping[int, int]]) -> None:
    """Write when tokens were used, by app and token; of several processes only one writes it."""
    due = sorted((token_id, ms) for of_app in uses.values() for token_id, ms in of_app.items())
    rows = [(time_parameter(ms), token_id, time_parameter(ms - TOKEN_USED_EVERY_MS)) for token_id, ms in due]
    execute_many(_WRITE_USE, rows)


def _digest(secret: str) -> bytes:
    digest = _keyed_hash(settings.SPM_PEPPER).copy()  # a new one costs ten times as much
    digest.update(secret.encode())
    return digest.digest()


@lru_cache(maxsize=4)
def _keyed_hash(text: str) -> hmac.HMAC:
    return hmac.new(text.encode(), digestmod="sha256")


def _basic_password(encoded: str) -> str | None:
    try:
        _, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except ValueError:  # no base 64, or no UTF-8 in it
        return None
    return password if colon and password else None


def _random_text(count: int) -> str:
    """``count`` random characters of base 62, each equally likely: bytes from 248 up are not used."""
    text = ""
    while len(text) < count:
        text += "".join(_DIGITS[byte % 62] for byte in random_bytes(count) if byte < 248)
    return text[:count]


def _check(body: str) -> str:
    number, text = zlib.crc32(body.encode()), ""
    for _ in range(_CHECK_CHARS):
        number, digit = divmod(number, 62)
        text = _DIGITS[digit] + text
    return text


_uses: NoteQueue[int, int] = NoteQueue("token uses", max, app_max=TOKENS_NOTED_PER_APP_MAX)
process_writer.add_queue(_uses, _write_uses)
