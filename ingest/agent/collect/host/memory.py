"""Collects main memory and swap (``mem``). ``available`` is the memory that programs can get without swapping."""

from collections.abc import Sequence

import psutil

from ingest.agent.lines import Point


def points() -> Sequence[Point]:
    """Returns one point ``mem``."""
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    fields: dict[str, float] = {
        "total": memory.total,
        "available": memory.available,
        "used": memory.used,
        "free": memory.free,
        "used_percent": float(memory.percent),
        "swap_total": swap.total,
        "swap_used": swap.used,
        "swap_used_percent": float(swap.percent),
        "swap_in_bytes": swap.sin,
        "swap_out_bytes": swap.sout,
    }
    # Not every system has these two.
    fields |= {name: getattr(memory, name) for name in ("cached", "buffers") if hasattr(memory, name)}
    return [Point("mem", fields)]
