"""The ways by which data comes to an app; the page that waits for the first data shows them.

``identity.way_of`` names the way of a message. ``write_arrivals`` writes first and last arrivals for the note writer of
the process.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from spm.accounts.bulk import execute_many, time_parameter

_WRITE_ARRIVAL = """
INSERT INTO ingest_arrival AS known (app_id, way, source, first_seen, last_seen) VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (app_id, way) DO UPDATE SET source = excluded.source, last_seen = excluded.last_seen
WHERE known.last_seen < excluded.last_seen
"""


@dataclass(frozen=True, slots=True)
class WayArrivals:
    """The first arrival by one way, and the last one with its source."""

    first_ms: int
    last_ms: int
    source: str


def write_arrivals(arrivals: Mapping[int, Mapping[str, WayArrivals]]) -> None:
    """Write arrivals, by app and way; within a transaction. A way that is known keeps its first one."""
    rows = [(app, way, each) for app, ways in sorted(arrivals.items()) for way, each in sorted(ways.items())]
    execute_many(
        _WRITE_ARRIVAL,
        [
            (app, way, each.source, time_parameter(each.first_ms), time_parameter(each.last_ms))
            for app, way, each in rows
        ],
    )


def merge_arrivals(before: WayArrivals, later: WayArrivals) -> WayArrivals:
    """Join arrivals by one way: the first that was noted, and the one with the latest time."""
    last = later if later.last_ms > before.last_ms else before
    return WayArrivals(before.first_ms, last.last_ms, last.source)
