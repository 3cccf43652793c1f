"""When the next look at the machine is due. Pure: values in, value out.

Every host has a phase of its own within the period, drawn from its name: a fleet is spread evenly and stays so across
restarts. Due times are ``k · period + phase`` on the wall clock, so that a slow look or a late wake-up never adds up.
"""

from hashlib import blake2b


def phase_ms(host: str, period_ms: int) -> int:
    """Where in the period this host stands."""
    return int.from_bytes(blake2b(host.encode(), digest_size=8).digest(), "big") % period_ms


def next_due_ms(now_ms: int, *, last_due_ms: int, period_ms: int, phase: int) -> int:
    """The first due time after now and after the last one; missed ones are left out, never caught up.

    A last due time more than a period ahead is from before a jump of the clock, and is forgotten.
    """
    after = max(now_ms, last_due_ms) if last_due_ms - now_ms <= period_ms else now_ms
    return ((after - phase) // period_ms + 1) * period_ms + phase


def backoff_s(failures: int, *, base_s: float, most_s: float, asked_s: float | None) -> float:
    """How long to wait after so many failures in a row: doubling, at least what the server asked for, bounded."""
    doubled = base_s * 2.0 ** min(failures - 1, 30)
    return min(most_s, max(doubled, asked_s or 0.0))
