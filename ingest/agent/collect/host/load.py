"""Load averages over 1, 5 and 15 minutes, the number of processors to compare them with, and the time since boot."""

import os
from collections.abc import Sequence

import psutil

from ingest.agent.lines import Point


def points() -> Sequence[Point]:
    """One point ``load``."""
    one, five, fifteen = os.getloadavg()
    fields = {"load1": one, "load5": five, "load15": fifteen, "cpus": os.cpu_count() or 1}
    return [Point("load", {**fields, "boot_time": int(psutil.boot_time())})]
