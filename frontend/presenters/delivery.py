"""Where an app's samples went, in words and rows that people and their spreadsheets understand.

Pages, the REST interface and the download share it: ``now`` and ``span`` read the account, ``places`` words each number
of it with what it means and what to do, ``csv_lines`` and ``json_lines`` write the rows of a download.
"""

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import orjson
from django.http import StreamingHttpResponse

from ingest.accounting import balance as accounts
from ingest.accounting.balance import Line, Span
from rollups.services import runs as services_runs
from spm import limits
from spm.accounts import quotas
from spm.accounts.models import App
from spm.clock import moment
from spm.errors import StoreUnavailable
from spm.store.ledger import quota
from spm.store.ledger.balance import Balance
from spm.store.ledger.balance_hours import NumberGap

SPANS = ((1, "1 h"), (24, "24 h"), (168, "7 days"))  # offered on the page
Row = Mapping[str, Any]
_LINES_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Quotas:
    """What an app may send, and how much of it it has used; ``series`` is None where nobody has counted yet."""

    series: int | None
    series_max: int
    samples_per_s: int

    @property
    def share(self) -> float:
        """Series in percent of those it may have."""
        return 100 * (self.series or 0) / max(1, self.series_max)

    @property
    def full(self) -> bool:
        """Whether new series are refused."""
        return self.series is not None and self.series >= self.series_max


def quota_of(app: App) -> Quotas:
    """An app's quotas now."""
    allowed = quotas.told(app)
    try:
        series = quota.series_of(services_runs.site().store, app.pk)
    except StoreUnavailable:
        series = None
    return Quotas(series, allowed.series, allowed.samples_per_s)


@dataclass(frozen=True, slots=True)
class Place:
    """One place where samples can be: how many are there, what that means, what to do; ``href`` shows more of it."""

    name: str
    title: str
    samples: int
    messages: int
    means: str
    act: str
    bad: bool = False


def now(app: App) -> Balance:
    """Where everything is."""
    site = services_runs.site()
    return accounts.now(site.store, app.pk, site.clock.now_ms())


def span(app: App, hours: int) -> Span:
    """What became of the messages of the last hours."""
    site = services_runs.site()
    return accounts.span(site.store, app.pk, site.clock.now_ms(), hours)


def places(found: Balance) -> list[Place]:
    """Every place there is; those that ought to be empty are marked when they are not."""
    messages, samples = found.messages, found.samples
    waits = _Waits(found)
    return [
        Place("stored", "Stored", samples.stored, messages.stored, "Charts and alerts see them.", ""),
        Place(
            "queued",
            "Queued",
            samples.queued,
            messages.queued,
            "Safe, and waiting to be written.",
            waits.queued,
            waits.long,
        ),
        Place(
            "in_flight",
            "In flight",
            samples.in_flight,
            messages.in_flight,
            "A server has them in hand; their sender still waits for its answer.",
            "",
        ),
        Place(
            "rejected",
            "Refused lines",
            samples.rejected,
            messages.rejected,
            "Lines of otherwise good messages that could not be read. Their sender was told.",
            "See which ones, and mend the sender.",
            samples.rejected > 0,
        ),
        Place(
            "dead",
            "Dead letters",
            samples.dead,
            messages.dead,
            "Could not be stored, and are kept with the cause.",
            "Have the cause mended; staff can then accept them anew.",
            samples.dead > 0,
        ),
        Place(
            "late",
            "Too late",
            samples.late,
            messages.late,
            "Came for hours whose retention had ended. They are in no chart.",
            "Mend the sender's clock, or keep samples longer.",
            samples.late > 0,
        ),
        Place(
            "unconfirmed",
            "Unconfirmed",
            samples.unconfirmed,
            messages.unconfirmed,
            "A server ended with them in hand. What it had acknowledged still comes in; the rest got no answer.",
            "Nothing, if your senders send again what got no answer. Our agent does.",
            False,
        ),
    ]


@dataclass(frozen=True, slots=True)
class _Waits:
    """What to say of a queue."""

    found: Balance

    @property
    def long(self) -> bool:
        """Whether it has waited for more than a person would expect."""
        return self.found.samples.queued > 0 and self.found.lag_ms > 60_000

    @property
    def queued(self) -> str:
        """What to do."""
        if not self.long:
            return ""
        return "Tell the staff: nothing was written for a while. Nothing is lost, and no sender needs to do anything."


@dataclass(frozen=True, slots=True)
class ToldHour:
    """One line of the table by hour, with how much of the busiest hour it is, in percent."""

    line: Line
    share: float


def told_hours(found: Span) -> list[ToldHour]:
    """The newest first."""
    lines = found.by_hour()
    most = max((line.accepted for line in lines), default=0) or 1
    return [ToldHour(line, 100 * line.accepted / most) for line in lines]


# --- rows of a download -----------------------------------------------------------------------------------------------


def hour_rows(found: Span) -> Iterator[Row]:
    """By hour and source, the newest hour first."""
    for line in found.lines():
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


def gap_rows(found: Span) -> Iterator[Row]:
    """Messages that never came, the newest first."""
    for gap in found.gaps:
        yield gap_row(gap)


def gap_row(gap: NumberGap) -> Row:
    """One of them."""
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
CONTENTS: Mapping[str, tuple[Sequence[str], Callable[[Span], Iterator[Row]]]] = {
    "hours": (HOUR_COLUMNS, hour_rows),
    "gaps": (GAP_COLUMNS, gap_rows),
}


def csv_lines(columns: Sequence[str], rows: Iterator[Row]) -> Iterator[bytes]:
    """CSV with a head, as spreadsheets read it: a text that they would take for a formula begins with an apostrophe."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(columns)
    for number, row in enumerate(rows, start=1):
        writer.writerow([_harmless(row[column]) for column in columns])
        if number % _LINES_AT_ONCE == 0:
            yield buffer.getvalue().encode()
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue().encode()


def json_lines(_columns: Sequence[str], rows: Iterator[Row]) -> Iterator[bytes]:
    """An object per line."""
    for row in rows:
        yield orjson.dumps(row) + b"\n"


FORMS = {"csv": ("text/csv; charset=utf-8", csv_lines), "jsonl": ("application/x-ndjson", json_lines)}


def file(app: App, hours: int, content: str, form: str) -> StreamingHttpResponse:
    """A download: ``content`` is one of ``CONTENTS``, ``form`` one of ``FORMS``; counted before it begins."""
    columns, rows = CONTENTS[content]
    kind, lines = FORMS[form]
    found = span(app, hours)
    name = f"{content}-of-app-{app.pk}-until-{rfc3339(found.until_ms)[:19].replace(':', '')}Z.{form}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return StreamingHttpResponse(lines(columns, rows(found)), content_type=kind, headers=headers)


def _harmless(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.lstrip()[:1] in ("=", "+", "-", "@", "|") else value


def rfc3339(ms: int) -> str:
    """RFC 3339, in UTC."""
    return moment(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# --- the account as plain values --------------------------------------------------------------------------------------


def plain(found: Balance) -> dict[str, Any]:
    """The account for programs."""
    return {
        "at": rfc3339(found.at_ms),
        "adds_up": found.adds_up,
        "lag_ms": found.lag_ms,
        "messages": asdict(found.messages),
        "samples": asdict(found.samples),
        "findings": [asdict(finding) for finding in found.findings],
        "damaged_rows": found.damaged,
        "unread_processes": list(found.unread),
    }


def plain_span(found: Span) -> dict[str, Any]:
    """Some hours for programs, with as many sources and gaps as an answer may have."""
    sources = found.by_source()
    return {
        "first": rfc3339(found.first_ms),
        "until": rfc3339(found.until_ms),
        "total": found.whole(),
        "hours": found.by_hour(),
        "sources": sources[: limits.ACCOUNT_SOURCES_SHOWN],
        "sources_total": len(sources),
        "gaps": list(map(gap_row, found.gaps[: limits.ACCOUNT_GAPS_SHOWN])),
        "gaps_total": len(found.gaps),
        "damaged_rows": found.damaged,
    }
