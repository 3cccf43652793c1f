"""Says what an app has lost by cells of the store that cannot be reached. Pure."""

from collections.abc import Sequence

from rollups.check.findings import UNREADABLE, Report
from spm.clock import moment
from spm.limits import DAY_HOURS, HOUR_MS
from spm.store import keys
from spm.store.backends.base import UnreachableCells

_KINDS = {
    "series": "names of series",
    "log": "blocks of samples that no run has merged",
    "pending": "commit records",
    "chunks": "merged samples",
    "timelines": "times of merged samples",
    "inputs": "lists of what was merged",
    "hours": "rows of hours",
    "days": "rows of days",
    "manifest": "manifests",
    "ledger": "ledger rows",
    "marks": "watermarks",
    "retractions": "retractions",
    "dead": "dead letters",
    "config": "placement tables and other settings of all apps",
}
_HEADS = {"chunks": 13, "hours": 13}  # bytes of a key before its hour or day; 5 in other tables with one


def report_unreachable(app: int, cells: Sequence[UnreachableCells], report: Report) -> None:
    """Add a finding for each range in which rows of the app may be."""
    for each in cells:
        after, until = (None if cell is None else _row_of(each.table, cell) for cell in (each.after, each.until))
        if each.table == "config" or _meets(app, each.table, after, until):
            days = _days(app, each.table, after, until)
            text = f"{_KINDS[each.table]} {days} cannot be reached: pages of the store's file are damaged"
            report.add(UNREADABLE, each.table, after or b"", text)


def _row_of(table: str, cell: bytes) -> bytes:
    width = keys.TABLES[table]
    return cell.partition(b"\0")[0] if width is None else cell[:width]


def _meets(app: int, table: str, after: bytes | None, until: bytes | None) -> bool:
    """Whether rows of the app may lie between two rows; these may have lost cells, too."""
    ranges = keys.app_ranges(table, app)
    return any((until is None or start <= until) and (after is None or after < stop) for start, stop in ranges)


def _days(app: int, table: str, after: bytes | None, until: bytes | None) -> str:
    """Between which days, if both ends say so: newer rows come first."""
    head = _HEADS.get(table, 5)
    if after is None or until is None or keys.app_of(table, after) != app or after[:head] != until[:head]:
        return "of days that it cannot say"
    newest, oldest = keys.day_of(table, after), keys.day_of(table, until)
    if newest is None or oldest is None:
        return "of days that it cannot say"
    first, last = (f"{moment(day * DAY_HOURS * HOUR_MS):%Y-%m-%d}" for day in (oldest, newest))
    return f"of {first}" if first == last else f"of {first} to {last}"
