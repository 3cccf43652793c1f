"""Computes when the next collection is due, and how long pushing pauses after failures. Pure.

Every host has its own phase within the period, derived from its name, so that a fleet is spread evenly, also after
restarts. Due times are ``k · period + phase`` on the wall clock, so that slow collections cause no drift.
"""

from hashlib import blake2b


def phase_ms(host: str, period_ms: int) -> int:
    """Returns the offset of this host within the period."""
    return int.from_bytes(blake2b(host.encode(), digest_size=8).digest(), "big") % period_ms


def next_due_ms(now_ms: int, *, last_due_ms: int, period_ms: int, phase: int) -> int:
    """Returns the first due time after now and after the last one. Missed times are skipped, never caught up.

    A last due time more than a period ahead is from before a jump of the clock, and does not count.
    """
    after = max(now_ms, last_due_ms) if last_due_ms - now_ms <= period_ms else now_ms
    return ((after - phase) // period_ms + 1) * period_ms + phase


def backoff_s(failures: int, *, base_s: float, most_s: float, requested_s: float | None) -> float:
    """Returns the pause after so many failures in a row: it doubles, respects the server's request, and has a bound."""
    doubled = base_s * 2.0 ** min(failures - 1, 30)
    return min(most_s, max(doubled, requested_s or 0.0))
