"""How many notifications a receiver gets: a token bucket, and a digest when too much is due at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from alerts.telling import limits

G = TypeVar("G")
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """A budget: ``tokens`` at ``at_ms``, refilled by ``per_hour`` up to ``tokens_max``. Spending gives a new value."""

    tokens: float
    at_ms: int
    per_hour: int = limits.RECEIVER_TOKENS_PER_HOUR
    tokens_max: int = limits.RECEIVER_TOKENS_MAX

    def at(self, now_ms: int) -> "TokenBucket":
        """Return the bucket at a time. A clock that was put back refills nothing and takes nothing away."""
        gained = max(now_ms - self.at_ms, 0) * self.per_hour / HOUR_MS
        return TokenBucket(min(self.tokens + gained, self.tokens_max), now_ms, self.per_hour, self.tokens_max)

    def spend(self, count: int) -> "TokenBucket":
        """Return the bucket with fewer tokens."""
        return TokenBucket(self.tokens - count, self.at_ms, self.per_hour, self.tokens_max)

    def full_ms(self) -> int:
        """Return when the bucket has a whole token."""
        return self.at_ms + max(0, -int(-(1 - self.tokens) * HOUR_MS // self.per_hour))


@dataclass(frozen=True, slots=True)
class Packing(Generic[G]):
    """The groups of each notification to write now, or until when all of them wait."""

    notifications: tuple[tuple[G, ...], ...] = ()
    wait_until_ms: int | None = None


def pack(due: Sequence[G], *buckets: TokenBucket, digest_from_ms: int = 0) -> Packing[G]:
    """Distribute the groups that are due for one receiver over notifications, within all buckets.

    Each group has a notification of its own, unless many are due at once or the budget is too small for them: then one
    digest takes all, though not before ``digest_from_ms``. Without a whole token everything waits for the next one.
    """
    if not due:
        return Packing()
    if any(bucket.tokens < 1 for bucket in buckets):
        return Packing(wait_until_ms=max(bucket.full_ms() for bucket in buckets))
    if len(due) < limits.DIGEST_GROUPS_MIN and all(bucket.tokens >= len(due) for bucket in buckets):
        return Packing(tuple((group,) for group in due))
    if any(bucket.at_ms < digest_from_ms for bucket in buckets):
        return Packing(wait_until_ms=digest_from_ms)
    return Packing((tuple(due),))
