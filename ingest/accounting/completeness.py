"""What should have come from each source, and what came: by its announced period, and by the numbers of its messages.

    expected   messages that its period asks for, since it is known; never fewer than it numbered. Where the period has
               changed in these hours, each stretch counts by its own
    got        messages that came, each number once, however often it was sent
    missing    numbers that never came although later ones did: lost on their way, or dropped by a full spool
    silent     the rest: it sent nothing, because it or its host was down

Enter by ``source_completeness``, for the sources in some hours: those in which messages were accepted, so messages from
a spool count when they arrive. ``source_readings`` and ``hour_readings`` turn it into series for the app itself:
``spm_source_up`` and ``spm_source_age_seconds`` of now, ``spm_source_expected_messages``, ``_got_`` and ``_missing_``
of the last full hour. Sources without an announced period are left out: what they should send is unknown. Pure but for
``source_completeness``, ``announcing_sources`` and ``hour_completeness``, which read.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from ingest.accounting import balance
from ingest.accounting.balance import HourSpan
from spm import limits
from spm.accounts import sources
from spm.accounts.models import Source
from spm.limits import HOUR_MS
from spm.store.backends.base import Backend
from spm.telemetry import MetricValue


@dataclass(frozen=True, slots=True)
class KnownSource:
    """A source as the database knows it."""

    name: str
    first_ms: int
    last_ms: int
    period_ms: int
    period_since_ms: int = 0  # before that it had announced another period, or none (0)
    period_before_ms: int = 0

    def state(self, now_ms: int) -> str:
        """Return ``up``, ``late`` (overdue) or ``gone``."""
        return sources.state(self.last_ms, now_ms, self.period_ms)


@dataclass(frozen=True, slots=True)
class Completeness:
    """The messages of one source in one stretch of time."""

    source: str
    state: str
    period_ms: int
    last_ms: int
    expected: int
    got: int
    missing: int

    @property
    def silent(self) -> int:
        """The number of messages that it did not send."""
        return max(0, self.expected - self.got - self.missing)

    @property
    def share(self) -> float | None:
        """The part of expected messages that came, 0 to 1; ``None`` where none was expected."""
        return min(1.0, self.got / self.expected) if self.expected else None


def announcing_sources(app_id: int, now_ms: int) -> list[KnownSource]:
    """Return the sources that announced a period, the newest first, ``COMPLETENESS_SOURCES_MAX`` at most."""
    rows = Source.objects.filter(app_id=app_id, period_ms__isnull=False).order_by("-last_seen")
    return [
        KnownSource(
            s.name, _ms(s.first_seen), _ms(s.last_seen), s.period_ms or 0, _ms(s.period_since), s.period_before_ms or 0
        )
        for s in rows[: limits.COMPLETENESS_SOURCES_MAX]
    ]


def source_completeness(store: Backend, app_id: int, now_ms: int, hours: int) -> list[Completeness]:
    """Return the completeness of each source in the last ``hours``, the present one included; the worst first."""
    known = announcing_sources(app_id, now_ms)
    if not known:
        return []
    span = balance.read_span(store, app_id, now_ms, hours)
    compared = compare(known, span, since_ms=span.first_ms, until_ms=now_ms, now_ms=now_ms)
    return sorted(compared, key=lambda one: (one.share is None, one.share or 0.0, one.source))


def compare(
    known: Iterable[KnownSource], span: HourSpan, *, since_ms: int, until_ms: int, now_ms: int
) -> Iterator[Completeness]:
    """Compare each source's messages stamped in these hours with those that its period asks for."""
    got_of, missing_of = _got(span), _missing(span)
    for one in known:
        got, missing = got_of.get(one.name, 0), missing_of.get(one.name, 0)
        expected = max(expected_messages(one, since_ms, until_ms), got + missing)
        yield Completeness(one.name, one.state(now_ms), one.period_ms, one.last_ms, expected, got, missing)


def expected_messages(one: KnownSource, since_ms: int, until_ms: int) -> int:
    """Return how many messages its periods ask for in a stretch of time, since it is known. One may be on its way."""
    start_ms = max(since_ms, one.first_ms)
    change_ms = min(max(start_ms, one.period_since_ms), max(start_ms, until_ms))
    return _periods(change_ms - start_ms, one.period_before_ms) + _periods(until_ms - change_ms, one.period_ms)


def source_readings(known: Iterable[KnownSource], now_ms: int) -> Iterator[MetricValue]:
    """Yield which sources are up now, and how old their last message is."""
    for one in known:
        yield MetricValue("spm_source_up", {"source": one.name}, int(one.state(now_ms) == "up"))
        yield MetricValue("spm_source_age_seconds", {"source": one.name}, max(0, now_ms - one.last_ms) / 1000)


def hour_readings(rows: Iterable[Completeness]) -> Iterator[MetricValue]:
    """Yield what was expected in an hour, and what came."""
    for one in rows:
        label = {"source": one.source}
        yield MetricValue("spm_source_expected_messages", label, one.expected)
        yield MetricValue("spm_source_got_messages", label, one.got)
        yield MetricValue("spm_source_missing_messages", label, one.missing)


def hour_completeness(
    store: Backend, app_id: int, known: Iterable[KnownSource], hour: int, now_ms: int
) -> list[Completeness]:
    """Return the completeness of each source in one full hour, by its number."""
    since_ms, until_ms = hour * HOUR_MS, (hour + 1) * HOUR_MS
    two_hours = balance.read_span(store, app_id, until_ms - 1, 2)
    gaps = tuple(gap for gap in two_hours.gaps if gap.before_ms >= since_ms)
    newest = HourSpan(since_ms, until_ms, two_hours.hours[-1:], gaps)
    return list(compare(known, newest, since_ms=since_ms, until_ms=until_ms, now_ms=now_ms))


def _got(span: HourSpan) -> Mapping[str, int]:
    """Return messages by source: numbered ones once each, of others as many as were settled."""
    messages: dict[str, int] = {}
    numbered: dict[str, int] = {}
    for hour in span.hours:
        for source, count in zip(hour.sources, hour.messages.tolist(), strict=True):
            messages[source] = messages.get(source, 0) + count
        for run in hour.runs:
            numbered[run.source] = numbered.get(run.source, 0) + run.last - run.first + 1
    return messages | numbered


def _missing(span: HourSpan) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for gap in span.gaps:
        counts[gap.source] = counts.get(gap.source, 0) + gap.count
    return counts


def _periods(length_ms: int, period_ms: int) -> int:
    return max(0, length_ms // period_ms) if period_ms else 0


def _ms(moment: datetime | None) -> int:
    return round(moment.timestamp() * 1000) if moment else 0
