"""Checks a person's password, or the code of a second factor, for a request: the only way to do it, for every page.

1. Count the try, or refuse it: before any hash is computed (``budgets``), and before anything is written where as
   many wait for a hash as may. ``recent_refusals`` remembers who has to wait.
2. Hash, in turn, once, whether the account exists or not (``hashers``).
3. Settle the try, and note it in the audit log (``journal``).

Refusals say the same of accounts that exist and of those that do not. What makes the site send a mail is counted, too
(``count_request``). Enter by ``log_in``, ``is_password_of``, ``is_code_of`` and ``log_out``.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from allauth.account.models import EmailAddress
from django.contrib.auth import authenticate
from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpRequest

from spm.accounts import audit
from spm.accounts.logins import budgets, hashers
from spm.accounts.logins.journal import Count, Journal
from spm.accounts.logins.limits import LOGIN_AUDIT_SINGLY
from spm.accounts.logins.origins import Origin, address_of, origin_of
from spm.accounts.logins.recent_refusals import process_refusals
from spm.accounts.logins.rules import Decision
from spm.clock import SystemClock, moment
from spm.errors import LoginRefused

_clock = SystemClock()
_journal = Journal()
_UNKNOWN = "an unknown login"  # what was typed may be a password


@dataclass(frozen=True, slots=True)
class Login:
    """A person whose password was right, and the id that their browser keeps from now on."""

    user: User
    device: str


def log_in(request: HttpRequest, login: str, password: str) -> Login | None:
    """The person of this login (or mail address) and password; None if one is wrong. Raises ``LoginRefused``."""
    owner = _owner(login)
    name = owner.get_username() if owner else login

    def check() -> User | None:
        user = authenticate(request, username=name, password=password)
        return user if isinstance(user, User) else None

    try:
        right = _check(request, name, check)
    except budgets.LoginThrottled as throttled:
        event = _throttled_event("login", origin_of(request, name), throttled)
        process_refusals.note(
            origin_of(request, login), throttled, partial(_journal.count_only, event), _clock.now_ms()
        )
        raise
    if right is not None:
        process_refusals.clear()
        _note("login", right.user, request)
    return right


def is_password_of(user: User, request: HttpRequest, password: str) -> bool:
    """Whether this is the password of a person who is logged in. Raises ``LoginRefused``."""
    return _check(request, user.get_username(), lambda: user if user.check_password(password) else None) is not None


def is_code_of(user: User, request: HttpRequest, check: Callable[[], bool]) -> bool:
    """Whether the code of a person's second factor is right, which ``check`` says. Raises ``LoginRefused``."""
    return _check(request, user.get_username(), lambda: user if check() else None, "second factor") is not None


def count_request(request: HttpRequest, act: str, address: str) -> None:
    """Count a request that makes the site write to ``address``. Raises ``LoginRefused`` when there were too many."""
    origin = origin_of(request, address, act)
    try:
        budgets.reserve(origin, _clock.now_ms())
    except budgets.LoginThrottled as throttled:
        _note_flood(_throttled_event(act, origin, throttled), "", origin)
        text = f"There were too many requests of this kind. Please try again in {throttled.when}."
        raise LoginRefused(text, throttled.retry_after_s) from throttled


def log_out(request: HttpRequest, user: User | AnonymousUser) -> None:
    """Note that a person logs out."""
    if isinstance(user, User):
        _note("logout", user, request)


def _check(request: HttpRequest, login: str, check: Callable[[], User | None], act: str = "login") -> Login | None:
    with ExitStack() as place:

        def take_place(decision: Decision) -> None:
            if act == "login":  # a password, whose hash needs a slot
                place.enter_context(hashers.SLOTS.place(is_stranger=not decision.known))

        return _check_in_place(request, login, check, act, take_place)


def _check_in_place(
    request: HttpRequest,
    login: str,
    check: Callable[[], User | None],
    act: str,
    take_place: Callable[[Decision], None],
) -> Login | None:
    origin = origin_of(request, login, act)
    try:
        reservation = budgets.reserve(origin, _clock.now_ms(), take_place)
    except budgets.LoginThrottled as throttled:
        _note_flood(_throttled_event(act, origin, throttled), login, origin)
        raise
    try:
        with hashers.as_stranger(not reservation.decision.known):
            user = check()
    except BaseException:
        budgets.refund(reservation)
        raise
    if user is None:
        budgets.settle_wrong(reservation, _owner(login), _clock.now_ms())
        _note_flood(f"{act} failed {origin.account + origin.address}", login, origin)
        return None
    return Login(user, budgets.settle_right(reservation, _clock.now_ms()))


def _throttled_event(act: str, origin: Origin, throttled: budgets.LoginThrottled) -> str:
    return f"{act} throttled {origin.keys[throttled.scope]}"


def _note_flood(event: str, login: str, origin: Origin) -> None:
    """Note an event, an action and a key, that strangers can make as often as they like."""
    count = _journal.note(event, _clock.now_ms())
    if count is None:
        return
    action = event.rpartition(" ")[0]
    owner = None if count.is_together else _owner(login)
    subject = "many logins" if count.is_together else owner.get_username() if owner else _UNKNOWN
    detail = _detail(origin.address, count)
    audit.record(action, subject, actor=None, organisation=None, name="somebody", detail=detail)


def _note(action: str, person: User, request: HttpRequest) -> None:
    """Note what a person did."""
    address = address_of(request)
    count = _journal.note(f"{action} {person.pk} {address}", _clock.now_ms(), LOGIN_AUDIT_SINGLY)
    if count is not None:
        detail = _detail(address, count)
        audit.record(action, person.get_username(), actor=person, organisation=None, detail=detail)


def _detail(address: str, count: Count) -> dict[str, Any]:
    return {"address": address, "count": count.events, "since": moment(count.since_ms).isoformat()}


def _owner(login: str) -> User | None:
    """The person who has confirmed this address; else whose login it is; else the newest with this address."""
    address = EmailAddress.objects.filter(email=login.lower()).order_by("-verified", "-pk").first()
    if address is None or not address.verified:
        for name in ({"username": login}, {"username__iexact": login}):
            user = User.objects.filter(**name).order_by("pk").first()
            if user is not None:
                return user
    return User.objects.filter(pk=address.user_id).first() if address else None
