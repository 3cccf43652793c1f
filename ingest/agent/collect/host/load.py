"""Collects load averages over 1, 5 and 15 minutes, the number of processors, and the time of the boot (``load``)."""

import os
from collections.abc import Sequence

import psutil

from ingest.agent.lines import Point


def points() -> Sequence[Point]:
    """Returns one point ``load``."""
    one, five, fifteen = os.getloadavg()
    fields = {"load1": one, "load5": five, "load15": fifteen, "cpus": os.cpu_count() or 1}
    return [Point("load", {**fields, "boot_time": int(psutil.boot_time())})]
