"""Figures of a benchmark: one line each, machine-readable, with the peer's and the ratio where there is one."""

from collections.abc import Mapping, Sequence

import numpy as np


def line(name: str, **figures: object) -> None:
    """Print `name  key=value …`; floats to three significant digits."""
    print(f"{name:<48} " + "  ".join(f"{k}={_short(v)}" for k, v in figures.items()), flush=True)


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def spent(before: Mapping[str, float], after: Mapping[str, float], values: int) -> dict[str, float]:
    """CPU µs per value by process, and in all."""
    each = {n: 1e6 * (after[n] - before.get(n, 0.0)) / values for n in after}
    return {"all": sum(each.values()), **{n: v for n, v in each.items() if v > 0.001}}


def quantiles(seconds: Sequence[float]) -> dict[str, float]:
    """Median and 95th percentile in ms."""
    return {"p50_ms": float(np.percentile(seconds, 50)) * 1e3, "p95_ms": float(np.percentile(seconds, 95)) * 1e3}
