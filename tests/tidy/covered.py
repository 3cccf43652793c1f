"""Prints what the short tests cover, as a table by room, and says which room is below its floor.

``bin/test --coverage`` measures and runs ``python -m tests.tidy.covered REPORT``, where REPORT is the JSON that
``coverage json`` writes. A share is that of statements and branches together, as coverage.py counts it. Nothing here
measures. Enter by ``cover`` and ``table``.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Where a wrong branch loses data or an alert, so the short tests alone must reach most of it. Each is what the tests of
# these rooms alone reached when it was set, rounded down to a whole percent; those of other rooms add to it.
FLOORS = {"spm/store": 88, "rollups/decide": 88, "alerts/judging": 90}
ROOMS = (
    "spm",
    "spm/accounts",
    "spm/cli",
    "spm/query",
    "spm/store",
    "spm/web",
    "ingest",
    "ingest/agent",
    "ingest/protocols",
    "rollups",
    "rollups/decide",
    "alerts",
    "alerts/judging",
    "frontend",
)


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many statements and branches a room has, and how many of them tests run through."""

    room: str
    statements: int
    branches: int
    covered: int

    @property
    def share(self) -> float:
        """The covered part, in percent."""
        return 100 * self.covered / max(self.statements + self.branches, 1)

    @property
    def is_below_floor(self) -> bool:
        """Whether its room has a floor and this is less."""
        return self.share < FLOORS.get(self.room, 0)


def room_of(path: str) -> str:
    """Return the innermost room that a file of the product stands in."""
    return max((room for room in ROOMS if path.startswith(f"{room}/")), key=len)


def cover(files: Mapping[str, Mapping[str, Any]]) -> list[Coverage]:
    """Add up the files of a report of coverage.py, room by room, in the order of ``ROOMS``."""
    counts = {room: [0, 0, 0] for room in ROOMS}
    for path, file in files.items():
        count, summary = counts[room_of(path)], file["summary"]
        count[0] += summary["num_statements"]
        count[1] += summary["num_branches"]
        count[2] += summary["covered_lines"] + summary["covered_branches"]
    return [Coverage(room, *count) for room, count in counts.items()]


def table(rooms: Iterable[Coverage]) -> str:
    """Write a line per room, without what stands in inner rooms; rooms below their floor say so."""
    lines = [f"{'room':<18}{'statements':>12}{'branches':>10}{'covered':>11}{'floor':>8}"]
    for each in rooms:
        floor = f"{FLOORS[each.room]} %" if each.room in FLOORS else "–"
        line = f"{each.room:<18}{each.statements:>12,}{each.branches:>10,}{each.share:>9.1f} %{floor:>8}"
        lines.append(line + ("  BELOW ITS FLOOR" if each.is_below_floor else ""))
    return "\n".join(lines)


def main(report: Path) -> int:
    """Print the table of a report; returns 1 if a room is below its floor."""
    rooms = cover(json.loads(report.read_text())["files"])
    print(table(rooms))
    return int(any(each.is_below_floor for each in rooms))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
