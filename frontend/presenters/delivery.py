"""Presents the balance of an app's samples: for pages, the REST interface and downloads.

``read_balance`` and ``read_hours`` read it, ``balance_entries`` explains each number of it and says what to do, and
``download_response`` writes its rows as CSV or JSON lines.
"""

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import orjson
from django.http import StreamingHttpResponse

from frontend.transfer.cells import guarded
from ingest.accounting import balance
from ingest.accounting.balance import BalanceLine, HourSpan
from rollups.services import runs as services_runs
from spm import limits
from spm.accounts import quotas
from spm.accounts.models import App
from spm.clock import moment
from spm.errors import StoreUnavailable
from spm.query import storage_for
from spm.store.ledger import quota
from spm.store.ledger.balance import Balance
from spm.store.ledger.balance_hours import NumberGap

SPANS = ((1, "1 h"), (24, "24 h"), (168, "7 days"))  # offered on the page
Row = Mapping[str, Any]
_LINES_AT_ONCE = 1_000
_LAG_NORMAL_MS = 60_000  # a queue that waits longer is worth a word to the staff


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """The quotas of an app and how much of them is used; ``series`` is None until they have been counted.

    ``reserved``: the series that server processes may register, in portions of thousands; it decides who is refused.
    """

    series: int | None
    series_max: int
    samples_per_s: int | None  # None: any number
    reserved: int | None = None
    past_hours: int | None = None  # that it may send to within an hour; None: any number

    @property
    def share(self) -> float:
        """Series in percent of the quota."""
        return 100 * (self.series or 0) / max(1, self.series_max)

    @property
    def full(self) -> bool:
        """Whether new series are rejected."""
        return self.reserved is not None and self.reserved >= self.series_max


def quota_of(app: App) -> QuotaUse:
    """Read an app's quotas and their use."""
    allowed = quotas.quota_of_row(app)
    try:
        reserved = quota.series_of(services_runs.site().store, app.pk)
        series = None if reserved is None else storage_for(app.pk).cardinality(most=1).series
    except StoreUnavailable:
        series = reserved = None
    return QuotaUse(series, allowed.series, allowed.samples_per_s, reserved, allowed.past_hours)


@dataclass(frozen=True, slots=True)
class BalanceEntry:
    """One line of the balance: how many samples and messages are there, what that means, and what to do.

    ``is_problem`` marks a line that should be empty and is not.
    """

    name: str
    title: str
    samples: int
    messages: int
    meaning: str
    advice: str
    is_problem: bool = False


def read_balance(app: App) -> Balance:
    """Read where all samples of the app are now."""
    site = services_runs.site()
    return balance.read_now(site.store, app.pk, site.clock.now_ms())


def read_hours(app: App, hours: int) -> HourSpan:
    """Read the outcomes of the messages of the last hours."""
    site = services_runs.site()
    return balance.read_span(site.store, app.pk, site.clock.now_ms(), hours)


_TEXTS: Mapping[str, tuple[str, str, str]] = {  # title, meaning, advice
    "stored": ("Stored", "Charts and alerts include them.", ""),
    "queued": ("Queued", "Durable, and waiting to be written.", ""),
    "in_flight": ("In flight", "A server is processing them; their sender still waits for its answer.", ""),
    "rejected": (
        "Rejected lines",
        "Lines that could not be read, in messages that were accepted. Their sender got the reason.",
        "See which ones, and correct the sender.",
    ),
    "dead": (
        "Dead letters",
        "They could not be stored, and are kept together with the cause.",
        "Have the cause repaired; staff can then accept them again.",
    ),
    "late": (
        "Too late",
        "They arrived for hours whose retention had ended. They are in no chart.",
        "Correct the sender's clock, or keep samples longer.",
    ),
    "unconfirmed": (
        "Unconfirmed",
        "A server ended while it processed them. Samples it had acknowledged still arrive; the others got no answer.",
        "Nothing, if your senders repeat messages without an answer. Our agent does.",
    ),
}
_PROBLEMS = ("rejected", "dead", "late")  # these should be empty
_QUEUE_STALLED = "Tell the staff: nothing was written for a while. No data is lost, and no sender needs to do anything."


def balance_entries(now: Balance) -> list[BalanceEntry]:
    """List every line of the balance; lines that should be empty are marked if they are not."""
    entries = []
    for name, (title, meaning, advice) in _TEXTS.items():
        samples, messages = getattr(now.samples, name), getattr(now.messages, name)
        is_problem = name in _PROBLEMS and samples > 0
        if name == "queued" and samples > 0 and now.lag_ms > _LAG_NORMAL_MS:
            advice, is_problem = _QUEUE_STALLED, True
        entries.append(BalanceEntry(name, title, samples, messages, meaning, advice, is_problem))
    return entries


@dataclass(frozen=True, slots=True)
class HourBar:
    """One hour of the chart and the table, with its samples in percent of the busiest hour."""

    line: BalanceLine
    share: float
    lost_share: float  # of those that are not stored: too late, rejected or dead

    @property
    def top(self) -> float:
        """Where its bar begins, in percent from above."""
        return 100 - self.share


def hour_bars(span: HourSpan) -> list[HourBar]:
    """List the rows of the table by hour, newest first."""
    lines = span.by_hour()
    most = max((line.accepted for line in lines), default=0) or 1
    return [
        HourBar(line, 100 * line.accepted / most, 100 * (line.late + line.rejected + line.dead) / most)
        for line in lines
    ]


# --- rows of a download -----------------------------------------------------------------------------------------------


def hour_rows(span: HourSpan) -> Iterator[Row]:
    """List the outcomes by hour and source, newest hour first."""
    for line in span.lines():
        yield {
            "hour": rfc3339(line.start_ms),
            "source": line.source,
            "messages": line.messages,
            "samples": line.accepted,
            "stored": line.stored,
            "late": line.late,
            "rejected": line.rejected,
            "dead": line.dead,
        }


def gap_rows(span: HourSpan) -> Iterator[Row]:
    """List the messages that never arrived, newest first."""
    for gap in span.gaps:
        yield gap_row(gap)


def gap_row(gap: NumberGap) -> Row:
    """Present one gap."""
    return {
        "source": gap.source,
        "spool": gap.spool,
        "first": gap.first,
        "last": gap.last,
        "messages": gap.count,
        "after": rfc3339(gap.after_ms),
        "before": rfc3339(gap.before_ms),
    }


HOUR_COLUMNS = ("hour", "source", "messages", "samples", "stored", "late", "rejected", "dead")
GAP_COLUMNS = ("source", "spool", "first", "last", "messages", "after", "before")
CONTENTS: Mapping[str, tuple[Sequence[str], Callable[[HourSpan], Iterator[Row]]]] = {
    "hours": (HOUR_COLUMNS, hour_rows),
    "gaps": (GAP_COLUMNS, gap_rows),
}


def csv_lines(columns: Sequence[str], rows: Iterator[Row]) -> Iterator[bytes]:
    """Write CSV with a header; a text that a spreadsheet would take for a formula gets an apostrophe."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(columns)
    for number, row in enumerate(rows, start=1):
        writer.writerow([guarded(cell) if isinstance(cell := row[column], str) else cell for column in columns])
        if number % _LINES_AT_ONCE == 0:
            yield buffer.getvalue().encode()
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue().encode()


def json_lines(_columns: Sequence[str], rows: Iterator[Row]) -> Iterator[bytes]:
    """Write one object per line."""
    for row in rows:
        yield orjson.dumps(row) + b"\n"


FORMS = {"csv": ("text/csv; charset=utf-8", csv_lines), "jsonl": ("application/x-ndjson", json_lines)}


def download_response(app: App, hours: int, content: str, form: str) -> StreamingHttpResponse:
    """Answer with a download; ``content`` is one of ``CONTENTS``, ``form`` one of ``FORMS``. Rows are read first."""
    columns, rows = CONTENTS[content]
    content_type, lines = FORMS[form]
    span = read_hours(app, hours)
    name = f"{content}-of-app-{app.pk}-until-{rfc3339(span.until_ms)[:19].replace(':', '')}Z.{form}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return StreamingHttpResponse(lines(columns, rows(span)), content_type=content_type, headers=headers)


def rfc3339(ms: int) -> str:
    """Write a time in UTC as RFC 3339."""
    return moment(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# --- the balance as JSON fields ---------------------------------------------------------------------------------------


def balance_fields(now: Balance) -> dict[str, Any]:
    """Return the balance as JSON fields."""
    return {
        "at": rfc3339(now.at_ms),
        "adds_up": now.adds_up,
        "lag_ms": now.lag_ms,
        "messages": asdict(now.messages),
        "samples": asdict(now.samples),
        "findings": [asdict(finding) for finding in now.discrepancies],
        "damaged_rows": now.damaged,
        "unread_processes": list(now.unread),
    }


def hours_fields(span: HourSpan) -> dict[str, Any]:
    """Return the outcomes of some hours as JSON fields, with as many sources and gaps as an answer may have."""
    sources = span.by_source()
    return {
        "first": rfc3339(span.first_ms),
        "until": rfc3339(span.until_ms),
        "total": span.total(),
        "hours": span.by_hour(),
        "sources": sources[: limits.BALANCE_SOURCES_SHOWN],
        "sources_total": len(sources),
        "gaps": list(map(gap_row, span.gaps[: limits.BALANCE_GAPS_SHOWN])),
        "gaps_total": len(span.gaps),
        "damaged_rows": span.damaged,
    }
