"""Remembers which logins this process has just refused: those of a flood need neither a thread nor the database.

The counts in the database decide whether a login must wait (``budgets``). Within the pause that they gave, another
login of the same account, network and device is refused by what is remembered here. It is forgotten after
``LOGIN_REFUSAL_KNOWN_MS`` even so: its owner may have logged in rightly through another process meanwhile, from when on
the network is known. Accounts are keyed as they are typed, whether they exist or not. Enter by ``RecentRefusals``; a
process has one, ``process_refusals``.
"""

from collections.abc import Callable
from dataclasses import dataclass

from spm.accounts.logins import limits
from spm.accounts.logins.budgets import LoginThrottled
from spm.accounts.logins.origins import Origin
from spm.accounts.logins.rules import Scope
from spm.bounded import LruCache

Counter = Callable[[int], bool]  # counts an event at a time; false where it must be written down instead


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A refusal: the end of its pause, until when it is remembered, and how a further one is counted."""

    pause_end_ms: int
    known_from_ms: int
    known_until_ms: int
    scope: Scope
    count: Counter


class RecentRefusals:
    """Refusals by origin. Thread-safe."""

    def __init__(self) -> None:
        self._refusals: LruCache[tuple[str, str], _Refusal] = LruCache(limits.LOGIN_REFUSALS_KNOWN_MAX)

    def __bool__(self) -> bool:
        return len(self._refusals) > 0

    def note(self, origin: Origin, throttled: LoginThrottled, count: Counter, now_ms: int) -> None:
        """Remember that a login of this origin has to wait."""
        end_ms = now_ms + throttled.wait_ms
        until_ms = min(end_ms, now_ms + limits.LOGIN_REFUSAL_KNOWN_MS)
        self._refusals.put(_key(origin), _Refusal(end_ms, now_ms, until_ms, throttled.scope, count))

    def refuse(self, origin: Origin, now_ms: int) -> LoginThrottled | None:
        """Count and return the refusal of a login of this origin; ``None`` where the database must be asked."""
        refusal = self._refusals.get(_key(origin))
        if refusal is None or not refusal.known_from_ms <= now_ms < refusal.known_until_ms:
            return None
        return LoginThrottled(refusal.pause_end_ms - now_ms, refusal.scope) if refusal.count(now_ms) else None

    def clear(self) -> None:
        """Forget all, as after a right login: it may have made a network known."""
        self._refusals.clear()


def _key(origin: Origin) -> tuple[str, str]:
    return origin.keys[Scope.PAIR], origin.device


process_refusals = RecentRefusals()
