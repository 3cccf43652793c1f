"""The findings of a check of the store, as values for reports, commands and pages."""

from dataclasses import dataclass, field

# kinds of findings
LOST = "lost"  # a row that must exist is missing
DAMAGED = "damaged"  # a row fails its checksum, or cannot be read
DIFFERS = "differs"  # an aggregate in force differs from a recount
UNMARKED = "unmarked"  # a block that no generation holds and no pending record names
UNLISTED = "unlisted"  # a page that its generation's directory does not name
UNKNOWN = "unknown"  # something cannot be checked
UNREADABLE = "unreadable"  # rows that cannot be reached: a page of the store's own file is damaged


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault of the store, with the key of its row."""

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
    """The result of checking one app."""

    findings: list[Finding] = field(default_factory=list)
    hours: int = 0  # of a (shard, hour), recounted
    days: int = 0  # of a shard, recounted
    stale: int = 0  # hours and days that readers do not use: the next run aggregates them again
    rows: int = 0  # read and verified
    unreferenced: int = 0  # rows that the next purge deletes

    @property
    def status(self) -> int:
        """The exit status of a command: 0 if there are no faults or all were repaired, else 1."""
        return int(any(not finding.repaired for finding in self.findings))

    @property
    def unreadable(self) -> int:
        """How many ranges of rows cannot be reached."""
        return sum(finding.kind == UNREADABLE for finding in self.findings)

    def add(self, kind: str, table: str, key: bytes, text: str, *, repaired: bool = False) -> None:
        """Adds a finding."""
        self.findings.append(Finding(kind, table, key, text, repaired))

    def count(self, *, hours: int = 0, days: int = 0, stale: int = 0, rows: int = 0, unreferenced: int = 0) -> None:
        """Adds to the numbers of what was checked."""
        self.hours += hours
        self.days += days
        self.stale += stale
        self.rows += rows
        self.unreferenced += unreferenced
