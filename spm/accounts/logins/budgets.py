"""The counted tries of all processes and machines, in the database.

A try is counted *before* its password is checked, in one transaction that locks its rows: tries at the same moment
cannot share one that is left. Afterwards it is settled: a wrong password leaves it counted, a right one takes it back,
and makes device and network known to the account; a device whose number was not known gets a new one. A try that must
wait only reads. Rows are locked in the order of their keys. Enter by ``reserve``.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, QuerySet

from spm.accounts.logins import limits, rules
from spm.accounts.logins.origins import Origin, new_device
from spm.accounts.logins.rules import Decision, History, Scope
from spm.accounts.models import LoginBudget, LoginNotice
from spm.errors import LoginRefused


class LoginThrottled(LoginRefused):
    """Too many wrong logins came before this one; ``scope`` says for what they were counted."""

    def __init__(self, wait_ms: int, scope: Scope) -> None:
        self.wait_ms, self.scope = wait_ms, scope
        wait_s = -(-wait_ms // 1000)
        number, unit = (wait_s, "second") if wait_s <= 90 else (-(-wait_s // 60), "minute")
        self.when = f"{number} {unit}{'' if number == 1 else 's'}"
        super().__init__(f"There were too many wrong logins. Please try again in {self.when}.", wait_s)


@dataclass(frozen=True, slots=True)
class Reservation:
    """A counted try that is not settled yet."""

    origin: Origin
    decision: Decision

    @property
    def keys(self) -> list[str]:
        """The keys of the rows it is counted in."""
        return [self.origin.keys[scope] for scope in self.decision.counted]


def reserve(origin: Origin, now_ms: int, check: Callable[[Decision], None] | None = None) -> Reservation:
    """Count a try; raises ``LoginThrottled`` if it must wait, and what ``check`` raises, before anything is written."""
    expected = _decide(origin, now_ms)
    if check is not None:
        check(expected)
    with transaction.atomic():
        _create_and_lock(origin, (origin.keys[scope] for scope in expected.counted))
        decision = _decide(origin, now_ms)
        if not decision.counted.keys() <= expected.counted.keys():  # its device has just been forgotten
            raise LoginThrottled(1_000, decision.blocked_by)
        rows = LoginBudget.objects.in_bulk([origin.keys[scope] for scope in decision.counted])
        for row in rows.values():
            history = rules.count(_history(row), now_ms)
            row.failures, row.last_ms = history.failures, history.last_ms
            row.expires_ms = max(rules.expires_ms(history), row.noticed_ms + limits.LOGIN_NOTICE_EVERY_MS)
        LoginBudget.objects.bulk_update(rows.values(), ["failures", "last_ms", "expires_ms"])
    _delete_some(LoginBudget.objects.filter(expires_ms__lt=now_ms).order_by("expires_ms"))
    return Reservation(origin, decision)


def refund(reservation: Reservation) -> None:
    """Take the count of a try back: its password was right, or was not checked."""
    with transaction.atomic():
        rows = LoginBudget.objects.select_for_update().filter(key__in=reservation.keys, failures__gt=0)
        keys = list(rows.order_by("key").values_list("key", flat=True))
        LoginBudget.objects.filter(key__in=keys).update(failures=F("failures") - 1)


def settle_right(reservation: Reservation, now_ms: int) -> str:
    """Settle a try with the right password; returns the id of its device, from now on known as its network is.

    The id in the browser's cookie stays only if the account has known it before: otherwise somebody could give a
    browser an id of his own choice.
    """
    refund(reservation)
    origin = reservation.origin
    device = origin.device if Scope.DEVICE in reservation.decision.counted else new_device()
    _know(origin.account, [origin.keys[Scope.PAIR], origin.device_key(device)], now_ms)
    known = LoginBudget.objects.filter(account=origin.account, known_until_ms__gt=0)
    _delete_some(known.order_by("-known_until_ms", "key"), skip=limits.LOGIN_KNOWN_MAX)
    return device


def settle_wrong(reservation: Reservation, owner: User | None, now_ms: int) -> None:
    """Settle a try with a wrong password. If further ones have to wait now, the account's owner gets a mail, once."""
    origin = reservation.origin
    rows = LoginBudget.objects.in_bulk([*reservation.keys, origin.account])
    used_up = any(
        origin.keys[scope] in rows and rows[origin.keys[scope]].failures >= free
        for scope, free in reservation.decision.counted.items()
        if scope is not Scope.NETWORK
    )
    if not used_up or (origin.account in rows and not _may_notice(rows[origin.account], now_ms)):
        return
    with transaction.atomic():
        _create_and_lock(origin, [origin.account])
        row = LoginBudget.objects.get(key=origin.account)
        if not _may_notice(row, now_ms):  # another process has just done it
            return
        row.noticed_ms = now_ms
        row.expires_ms = max(row.expires_ms, now_ms + limits.LOGIN_NOTICE_EVERY_MS)
        row.save(update_fields=["noticed_ms", "expires_ms"])
        if owner is not None and owner.email:
            device = new_device()
            _know(origin.account, [origin.device_key(device)], now_ms)
            LoginNotice.objects.create(user=owner, address=origin.address[:64], device=device, at_ms=now_ms)


def _decide(origin: Origin, now_ms: int) -> Decision:
    """The decision on a try that may be made now; raises ``LoginThrottled`` for one that must wait."""
    rows = LoginBudget.objects.in_bulk(list(origin.keys.values()))
    histories = {scope: _history(rows[key]) for scope, key in origin.keys.items() if key in rows}
    decision = rules.decide(histories, now_ms)
    if decision.wait_ms:
        raise LoginThrottled(decision.wait_ms, decision.blocked_by)
    return decision


def _create_and_lock(origin: Origin, keys: Iterable[str]) -> None:
    """Create rows that are missing, and lock all until the transaction ends: the update changes nothing."""
    network = origin.keys[Scope.NETWORK]
    LoginBudget.objects.bulk_create(
        [LoginBudget(key=key, account="" if key == network else origin.account) for key in sorted(keys)],
        update_conflicts=True,
        unique_fields=["key"],
        update_fields=["account"],
    )


def _know(account: str, keys: Iterable[str], now_ms: int) -> None:
    until_ms = now_ms + limits.LOGIN_KNOWN_MS
    LoginBudget.objects.bulk_create(
        [LoginBudget(key=k, account=account, known_until_ms=until_ms, expires_ms=until_ms) for k in sorted(keys)],
        update_conflicts=True,
        unique_fields=["key"],
        update_fields=["failures", "last_ms", "known_until_ms", "expires_ms"],
    )


def _may_notice(row: LoginBudget, now_ms: int) -> bool:
    return now_ms - row.noticed_ms >= limits.LOGIN_NOTICE_EVERY_MS


def _history(row: LoginBudget) -> History:
    return History(row.failures, row.last_ms, row.known_until_ms)


def _delete_some(rows: QuerySet[LoginBudget], skip: int = 0) -> None:
    """Delete a bounded number of rows, the first ones after ``skip``; rows that others hold are left for later."""
    keys = list(rows.values_list("key", flat=True)[skip : skip + limits.LOGIN_SWEEP_ROWS_MAX])
    if keys:
        with transaction.atomic():
            free = rows.filter(key__in=keys).select_for_update(skip_locked=True).values_list("key", flat=True)
            LoginBudget.objects.filter(key__in=list(free)).delete()
