"""What a check of the store has found: values for reports, commands and pages."""

from dataclasses import dataclass, field

# kinds of findings
LOST = "lost"  # a row that must be there is not
DAMAGED = "damaged"  # a row fails its checksum, or cannot be read
DIFFERS = "differs"  # an aggregate in force is not what a recount says
UNMARKED = "unmarked"  # a block that nothing holds and nothing waits for
UNLISTED = "unlisted"  # a page that its generation's directory does not name
UNKNOWN = "unknown"  # what cannot be checked, and why


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it must be, with the key of its row."""

    kind: str
    table: str
    key: bytes
    text: str
    repaired: bool = False

    def __str__(self) -> str:
        done = " (repaired)" if self.repaired else ""
        return f"{self.kind}: {self.table} {self.key.hex()}: {self.text}{done}"


@dataclass(slots=True)
class Report:
    """A check of one app."""

    findings: list[Finding] = field(default_factory=list)
    hours: int = 0  # of a (shard, hour), recounted
    days: int = 0  # of a shard, recounted
    stale: int = 0  # hours and days that readers do not use: the next run makes them anew
    rows: int = 0  # read and verified
    unreferenced: int = 0  # rows that the next purge deletes

    @property
    def status(self) -> int:
        """What a command exits with: 0 when all is well or was repaired, else 1."""
        return int(any(not finding.repaired for finding in self.findings))

    def add(self, kind: str, table: str, key: bytes, text: str, *, repaired: bool = False) -> None:
        """One more."""
        self.findings.append(Finding(kind, table, key, text, repaired))

    def count(self, *, hours: int = 0, days: int = 0, stale: int = 0, rows: int = 0, unreferenced: int = 0) -> None:
        """So many more were looked at."""
        self.hours += hours
        self.days += days
        self.stale += stale
        self.rows += rows
        self.unreferenced += unreferenced
