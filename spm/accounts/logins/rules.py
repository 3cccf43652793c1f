"""Decides whether a password may be tried now, from the tries before. Pure.

A try counts in one of two ways:

1. It comes from a *known origin*: a device or a network from which this account has logged in rightly before. It counts
   for this origin and account alone, so strangers cannot use up what the owner has left.
2. It comes from a stranger. It counts three times: for this account from this network, for this network whatever the
   account, and for this account whatever the network.

Each count has free tries. Beyond them each further try waits for a pause that doubles. A try that must wait is not
counted, so nobody can prolong a pause. Enter by ``decide``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from spm.accounts.logins import limits


class Scope(StrEnum):
    """For what tries are counted."""

    DEVICE = "device"  # one account from one device
    PAIR = "pair"  # one account from one network
    NETWORK = "network"  # one network, any account
    ACCOUNT = "account"  # one account, any network that it does not know


@dataclass(frozen=True, slots=True)
class History:
    """The tries that were counted for one scope: how many, when the last one was, until when its origin is known."""

    failures: int = 0
    last_ms: int = 0
    known_until_ms: int = 0


NOTHING = History()


@dataclass(frozen=True, slots=True)
class Decision:
    """What a try counts for, with the free tries of each; how long it must wait (0: not at all), for which scope."""

    counted: Mapping[Scope, int]
    wait_ms: int
    blocked_by: Scope
    known: bool


_STRANGER = {
    Scope.PAIR: limits.LOGIN_PAIR_FREE,
    Scope.NETWORK: limits.LOGIN_NETWORK_FREE,
    Scope.ACCOUNT: limits.LOGIN_ACCOUNT_FREE,
}


def decide(histories: Mapping[Scope, History], now_ms: int) -> Decision:
    """Decide on a try now. A scope without a history has seen none; without a device there is no such scope."""
    counted = next(
        (
            {scope: limits.LOGIN_KNOWN_FREE}
            for scope in (Scope.DEVICE, Scope.PAIR)
            if histories.get(scope, NOTHING).known_until_ms > now_ms
        ),
        _STRANGER,
    )
    waits = {scope: pause_left_ms(histories.get(scope, NOTHING), free, now_ms) for scope, free in counted.items()}
    blocked_by = max(waits, key=lambda scope: waits[scope])
    return Decision(counted, waits[blocked_by], blocked_by, counted is not _STRANGER)


def pause_left_ms(history: History, free: int, now_ms: int) -> int:
    """How long the next try has to wait. A last try in the future, beyond what clocks differ, means no pause."""
    age_ms = now_ms - history.last_ms
    if is_forgotten(history, now_ms) or age_ms < -limits.LOGIN_SKEW_MS:
        return 0
    return max(0, pause_ms(history.failures, free) - age_ms)


def pause_ms(failures: int, free: int) -> int:
    """The pause after so many failures: none for the free ones, then doubled up to a bound."""
    if failures < free:
        return 0
    return min(limits.LOGIN_PAUSE_MAX_MS, limits.LOGIN_PAUSE_MS << min(failures - free, 20))


def count(history: History, now_ms: int) -> History:
    """The history after one more try now."""
    failures = 0 if is_forgotten(history, now_ms) else history.failures
    return replace(history, failures=failures + 1, last_ms=now_ms)


def is_forgotten(history: History, now_ms: int) -> bool:
    """Whether the failures are too old to count: a few are forgotten sooner than many."""
    return now_ms - history.last_ms >= _memory_ms(history)


def expires_ms(history: History) -> int:
    """When nothing of the history counts any more."""
    return max(history.known_until_ms, history.last_ms + _memory_ms(history))


def _memory_ms(history: History) -> int:
    return limits.LOGIN_FORGET_FEW_MS if history.failures < limits.LOGIN_FEW else limits.LOGIN_FORGET_MS
