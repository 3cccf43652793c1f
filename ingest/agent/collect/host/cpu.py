"""Collects the usage of the processors (``cpu``) in percent of all of them since the last collection.

The kernel counts seconds per kind of work; the percentages are differences between two calls. Linux includes guest time
in user time, so it is not added again. A counter that decreases (iowait does) counts as 0.
"""

from collections.abc import Callable, Mapping, Sequence

import psutil

from ingest.agent.lines import Point

CpuTimes = Mapping[str, float]
_KINDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_RESTING = ("idle", "iowait")


def read_times() -> CpuTimes:
    """Returns seconds since boot per kind of work, summed over all processors."""
    return psutil.cpu_times()._asdict()


class CpuCollector:
    """Collects the usage between two calls; the first call measures from the creation of the collector."""

    def __init__(self, read: Callable[[], CpuTimes] = read_times) -> None:
        self._read = read
        self._before = read()

    def __call__(self) -> Sequence[Point]:
        now = self._read()
        spent = {kind: max(0.0, now.get(kind, 0.0) - self._before.get(kind, 0.0)) for kind in _KINDS}
        self._before = now
        total = sum(spent.values())
        if total <= 0:
            return []
        share = {f"usage_{kind}": round(100 * seconds / total, 3) for kind, seconds in spent.items()}
        busy = total - sum(spent[kind] for kind in _RESTING)
        return [Point("cpu", {**share, "usage_total": round(100 * busy / total, 3)})]
