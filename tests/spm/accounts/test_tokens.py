"""Tokens: what they look like, who holds with which scope, how soon a revoked one ends."""

import base64
from collections.abc import Callable
from typing import Any

import pytest
from django.test import RequestFactory

from spm import limits
from spm.accounts import tokens
from spm.accounts.logins import token_lookups
from spm.accounts.logins.token_lookups import TokenLookups
from spm.accounts.models import App, Token
from spm.bounded import TtlMap
from spm.clock import FakeClock
from spm.errors import Refused
from tests.support import process_state

Queries = Callable[[int], Any]


def test_a_token_opens_its_own_app_with_its_own_scope(app: App) -> None:
    token, secret = tokens.issue(app, name="agent", scopes=["ingest"])
    principal = tokens.authenticate(secret, "ingest")
    assert principal == tokens.Principal(app.pk, app.organisation_id, token.pk, frozenset({"ingest"}))


@pytest.mark.parametrize(
    ("scopes", "scope", "holds"),
    [
        (["ingest"], "read", False),
        (["read"], "ingest", False),
        (["read"], "read", True),
        (["write"], "read", True),
        (["write"], "ingest", False),
        (["admin"], "ingest", True),
        (["admin"], "write", True),
        (["read"], "admin", False),
    ],
)
def test_scopes_reach_as_far_as_they_say(app: App, scopes: list[str], scope: str, holds: bool) -> None:
    _, secret = tokens.issue(app, name="x", scopes=scopes)
    assert (tokens.authenticate(secret, scope) is not None) == holds


@pytest.mark.parametrize("scopes", [[], ["everything"], ["read", "everything"]])
def test_a_token_without_known_scopes_is_refused(app: App, scopes: list[str]) -> None:
    with pytest.raises(Refused):
        tokens.issue(app, name="x", scopes=scopes)


def test_the_database_keeps_neither_the_secret_nor_a_plain_hash(app: App) -> None:
    token, secret = tokens.issue(app, name="x", scopes=["read"])
    row = b"|".join(str(value).encode() for value in Token.objects.filter(pk=token.pk).values_list()[0])
    assert secret.encode() not in row
    assert secret.split("_")[2].encode() not in row
    assert len(bytes(token.digest)) == 32


def test_the_pepper_is_part_of_the_hash(app: App, settings: Any) -> None:
    _, secret = tokens.issue(app, name="x", scopes=["read"])
    settings.SPM_PEPPER = "another"
    assert tokens.authenticate(secret, "read") is None


@pytest.mark.parametrize("at", [0, 4, 12, 13, 30, 46, 50])
def test_a_mistyped_token_never_reaches_the_database(app: App, django_assert_num_queries: Queries, at: int) -> None:
    _, secret = tokens.issue(app, name="x", scopes=["read"])
    wrong = secret[:at] + ("a" if secret[at] != "a" else "b") + secret[at + 1 :]
    with django_assert_num_queries(0):
        assert tokens.authenticate(wrong, "read") is None


@pytest.mark.parametrize("text", ["", "spm_", "x" * 51, "spm_" + "é" * 47, "Bearer", "spm_" + "A" * 5000])
def test_text_that_cannot_be_a_token_is_turned_away(app: App, django_assert_num_queries: Queries, text: str) -> None:
    with django_assert_num_queries(0):
        assert tokens.authenticate(text, "read") is None


def test_a_well_formed_token_of_nobody_is_turned_away(app: App) -> None:
    token, secret = tokens.issue(app, name="x", scopes=["read"])
    token.delete()
    process_state.forget_tokens()
    assert tokens.authenticate(secret, "read") is None


def test_the_database_is_asked_once_in_five_seconds(
    app: App, clock: FakeClock, django_assert_num_queries: Queries
) -> None:
    _, secret = tokens.issue(app, name="x", scopes=["read"])
    tokens.authenticate(secret, "read", clock)
    clock.advance(4_900)
    with django_assert_num_queries(0):
        assert tokens.authenticate(secret, "read", clock)


def test_a_token_revoked_elsewhere_ends_within_five_seconds(app: App, clock: FakeClock) -> None:
    token, secret = tokens.issue(app, name="x", scopes=["read"])
    assert tokens.authenticate(secret, "read", clock)
    Token.objects.filter(pk=token.pk).update(revoked="2026-01-01T00:00Z")
    clock.advance(1000 * limits.TOKEN_CACHE_S)
    assert tokens.authenticate(secret, "read", clock) is None


def test_a_token_revoked_here_ends_at_once_and_only_once(app: App) -> None:
    token, secret = tokens.issue(app, name="x", scopes=["read"])
    assert tokens.authenticate(secret, "read")
    assert tokens.revoke(token)
    assert tokens.authenticate(secret, "read") is None
    assert not tokens.revoke(token)


def test_the_cache_never_grows_beyond_its_limit(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_principals", TtlMap(3, 60))
    for number in range(5):
        tokens.authenticate(tokens.issue(app, name=str(number), scopes=["read"])[1], "read")
        assert len(tokens._principals) <= 3


def test_however_many_tokens_of_nobody_come_those_that_are_valid_stay_remembered(
    app: App, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Queries
) -> None:
    for name in ("_principals", "_unknown"):
        monkeypatch.setattr(tokens, name, TtlMap(3, 60))
    _, secret = tokens.issue(app, name="x", scopes=["read"])
    assert tokens.authenticate(secret, "read")
    for number in range(5):
        token, forged = tokens.issue(app, name=str(number), scopes=["read"])
        token.delete()
        assert tokens.authenticate(forged, "read") is None
    with django_assert_num_queries(0):
        assert tokens.authenticate(secret, "read")
        assert tokens.authenticate(forged, "read") is None  # nor is the database asked twice for one of these


def forged(app: App, count: int) -> list[str]:
    """Well-formed tokens of nobody."""
    pairs = [tokens.issue(app, name=str(number), scopes=["read"]) for number in range(count)]
    Token.objects.filter(pk__in=[token.pk for token, _ in pairs]).delete()
    return [secret for _, secret in pairs]


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> TokenLookups:
    """The bound of look-ups of nobody, with three turns; what this process made is forgotten."""
    monkeypatch.setattr(token_lookups, "NOBODY_LOOKUPS_MAX", 3)
    process_state.forget_tokens()
    fresh = TokenLookups(tokens._read_after)
    monkeypatch.setattr(tokens, "_lookups", fresh)
    return fresh


def test_strangers_make_the_database_read_a_bounded_number_of_tokens(
    app: App, clock: FakeClock, lookups: TokenLookups, django_assert_num_queries: Queries
) -> None:
    texts = forged(app, 50)
    lookups._known.clear()
    with django_assert_num_queries(3 + 1):  # three turns, and once all tokens there are
        assert not any(tokens.authenticate(text, "read", clock) for text in texts)


def test_a_token_that_exists_is_looked_up_however_many_strangers_ask(
    app: App, clock: FakeClock, lookups: TokenLookups
) -> None:
    *texts, last = forged(app, 9)
    _, secret = tokens.issue(app, name="from another process", scopes=["read"])
    lookups._known.clear()
    assert not any(tokens.authenticate(text, "read", clock) for text in texts)
    assert tokens.authenticate(secret, "read", clock)
    _, new = tokens.issue(app, name="made meanwhile, elsewhere", scopes=["read"])
    lookups._known.discard(tokens.digest_of(new)[: token_lookups._BYTES])  # type: ignore[index]
    clock.advance(1_000)
    for _ in range(3):
        lookups.found_nobody(clock.monotonic())
    assert tokens.authenticate(last, "read", clock) is None
    assert tokens.authenticate(new, "read", clock)


def test_turns_for_look_ups_of_nobody_come_back(
    app: App, clock: FakeClock, lookups: TokenLookups, django_assert_num_queries: Queries
) -> None:
    *texts, last = forged(app, 5)
    lookups._known.clear()
    assert not any(tokens.authenticate(text, "read", clock) for text in texts)
    clock.advance(100)
    with django_assert_num_queries(1):
        assert tokens.authenticate(last, "read", clock) is None


@pytest.mark.parametrize(
    ("later_ms", "moves"), [(30_000, False), (limits.TOKEN_USED_EVERY_MS + 1, True)], ids=["half a minute", "a minute"]
)
def test_the_last_use_is_written_once_a_minute(app: App, clock: FakeClock, later_ms: int, moves: bool) -> None:
    token, secret = tokens.issue(app, name="x", scopes=["read"])
    tokens.authenticate(secret, "read", clock)
    token.refresh_from_db()
    first = token.last_used
    clock.advance(later_ms)
    tokens.authenticate(secret, "read", clock)
    token.refresh_from_db()
    assert (token.last_used != first) == moves


def test_a_use_that_another_process_wrote_just_now_stays(app: App) -> None:
    token, _ = tokens.issue(app, name="x", scopes=["read"])
    for now_ms in (1_000_000, 1_000_000 + limits.TOKEN_USED_EVERY_MS, 1_000_000 + limits.TOKEN_USED_EVERY_MS + 1):
        tokens._write_uses({app.pk: {token.pk: now_ms}})
        token.refresh_from_db()
        times = {round(token.last_used.timestamp() * 1000)} if token.last_used else set()
        assert times == {1_000_000 if now_ms <= 1_000_000 + limits.TOKEN_USED_EVERY_MS else now_ms}


def test_a_use_just_noted_costs_no_second_write(app: App, clock: FakeClock, django_assert_num_queries: Queries) -> None:
    _, secret = tokens.issue(app, name="x", scopes=["read"])
    tokens.authenticate(secret, "read", clock)
    clock.advance(30_000)
    with django_assert_num_queries(1):
        tokens.authenticate(secret, "read", clock)


def basic(text: str) -> str:
    """The header a program sends for a user and a password."""
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("Bearer abc", "abc"),
        ("bearer   abc ", "abc"),
        ("Token abc", "abc"),
        (basic("anybody:abc"), "abc"),
        (basic(":a:b"), "a:b"),
        (basic("abc"), None),
        (basic("abc:"), None),
        ("Basic !!!", None),
        ("Basic " + base64.b64encode(b"\xff\xfe:x").decode(), None),
        ("Bearer", None),
        ("Digest abc", None),
        ("", None),
    ],
)
def test_a_request_shows_its_token_in_any_usual_way(header: str, expected: str | None) -> None:
    assert tokens.from_request(RequestFactory().get("/", HTTP_AUTHORIZATION=header)) == expected


@pytest.mark.parametrize(("allowed", "expected"), [(True, "abc"), (False, None)])
def test_a_token_in_the_address_counts_only_where_allowed(allowed: bool, expected: str | None) -> None:
    assert tokens.from_request(RequestFactory().get("/?token=abc"), query_parameter=allowed) == expected


def test_no_two_tokens_are_alike_and_all_are_well_formed(app: App) -> None:
    secrets = {tokens.issue(app, name="x", scopes=["read"])[1] for _ in range(50)}
    assert len(secrets) == 50
    assert all(tokens.well_formed(secret) for secret in secrets)
