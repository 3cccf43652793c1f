"""What should have come from each source, and what came: by its announced period, and by the numbers of its messages.

    expected   messages its period asks for, since it is known; never fewer than it numbered. Where the period has
               changed in these hours, each stretch counts by its own
    got        messages that came, each number once, however often it was sent
    missing    numbers that never came although later ones did: lost on their way, or dropped by a full spool
    silent     the rest: it sent nothing, because it or its host was down

Enter by ``told``: sources of some hours. Hours are those in which messages were accepted; what waited in a spool counts
when it arrives. ``readings`` words it as series for the app itself: ``spm_source_up`` and ``spm_source_age_seconds`` of
now, ``spm_source_expected_messages``, ``_got_`` and ``_missing_`` of the last full hour. Only of sources that announced
a period: of others nobody knows what should have come. Pure but for ``told`` and ``of_app``, which ask.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from ingest.accounting import balance
from ingest.accounting.balance import Span
from spm import limits
from spm.accounts import sources
from spm.accounts.models import Source
from spm.limits import HOUR_MS
from spm.store.backends.base import Backend
from spm.telemetry import Reading


@dataclass(frozen=True, slots=True)
class Known:
    """A source as the database knows it."""

    name: str
    first_ms: int
    last_ms: int
    period_ms: int
    period_since_ms: int = 0  # before that it had announced another period, or none (0)
    period_before_ms: int = 0

    def state(self, now_ms: int) -> str:
        """``up``, ``late`` or ``gone``."""
        return sources.state(self.last_ms, now_ms, self.period_ms)


@dataclass(frozen=True, slots=True)
class Completeness:
    """One source in one stretch of time."""

    source: str
    state: str
    period_ms: int
    last_ms: int
    expected: int
    got: int
    missing: int

    @property
    def silent(self) -> int:
        """Messages it did not send."""
        return max(0, self.expected - self.got - self.missing)

    @property
    def share(self) -> float | None:
        """How much of what was expected came, 0 to 1; None where nothing was expected."""
        return min(1.0, self.got / self.expected) if self.expected else None


def of_app(app_id: int, now_ms: int) -> list[Known]:
    """The sources that announced a period, the newest first, ``SOURCES_TOLD_MAX`` at most."""
    found = Source.objects.filter(app_id=app_id, period_ms__isnull=False).order_by("-last_seen")
    return [
        Known(
            s.name, _ms(s.first_seen), _ms(s.last_seen), s.period_ms or 0, _ms(s.period_since), s.period_before_ms or 0
        )
        for s in found[: limits.SOURCES_TOLD_MAX]
    ]


def told(store: Backend, app_id: int, now_ms: int, hours: int) -> list[Completeness]:
    """The last ``hours``, the one under way included; sources that lack most first."""
    known = of_app(app_id, now_ms)
    if not known:
        return []
    span = balance.span(store, app_id, now_ms, hours)
    found = compared(known, span, since_ms=span.first_ms, until_ms=now_ms, now_ms=now_ms)
    return sorted(found, key=lambda one: (one.share is None, one.share or 0.0, one.source))


def compared(
    known: Iterable[Known], span: Span, *, since_ms: int, until_ms: int, now_ms: int
) -> Iterator[Completeness]:
    """Each source's messages stamped in these hours, with those its period asks for."""
    got, missing = _got(span), _missing(span)
    for one in known:
        came, lost = got.get(one.name, 0), missing.get(one.name, 0)
        asked = expected(one, since_ms, until_ms)
        yield Completeness(one.name, one.state(now_ms), one.period_ms, one.last_ms, max(asked, came + lost), came, lost)


def expected(one: Known, since_ms: int, until_ms: int) -> int:
    """Messages that its periods ask for in a stretch of time, since the source is known. One may be under way."""
    begin_ms = max(since_ms, one.first_ms)
    change_ms = min(max(begin_ms, one.period_since_ms), max(begin_ms, until_ms))
    return _fitting(change_ms - begin_ms, one.period_before_ms) + _fitting(until_ms - change_ms, one.period_ms)


def readings(known: Iterable[Known], now_ms: int) -> Iterator[Reading]:
    """Who is up now."""
    for one in known:
        yield Reading("spm_source_up", {"source": one.name}, int(one.state(now_ms) == "up"))
        yield Reading("spm_source_age_seconds", {"source": one.name}, max(0, now_ms - one.last_ms) / 1000)


def hour_readings(found: Iterable[Completeness]) -> Iterator[Reading]:
    """What was expected in an hour, and what came."""
    for one in found:
        label = {"source": one.source}
        yield Reading("spm_source_expected_messages", label, one.expected)
        yield Reading("spm_source_got_messages", label, one.got)
        yield Reading("spm_source_missing_messages", label, one.missing)


def hour_of(store: Backend, app_id: int, known: Iterable[Known], hour: int, now_ms: int) -> list[Completeness]:
    """One full hour, by its number."""
    span = balance.span(store, app_id, (hour + 1) * HOUR_MS - 1, 2)
    newest = Span(
        hour * HOUR_MS,
        (hour + 1) * HOUR_MS,
        span.hours[-1:],
        tuple(gap for gap in span.gaps if gap.before_ms >= hour * HOUR_MS),
    )
    since, until = hour * HOUR_MS, (hour + 1) * HOUR_MS
    return list(compared(known, newest, since_ms=since, until_ms=until, now_ms=now_ms))


def _got(span: Span) -> Mapping[str, int]:
    """Messages by source: numbered ones once each, of others as many as were settled."""
    messages: dict[str, int] = {}
    numbered: dict[str, int] = {}
    for hour in span.hours:
        for source, count in zip(hour.sources, hour.messages.tolist(), strict=True):
            messages[source] = messages.get(source, 0) + count
        for run in hour.runs:
            numbered[run.source] = numbered.get(run.source, 0) + run.last - run.first + 1
    return messages | numbered


def _missing(span: Span) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for gap in span.gaps:
        found[gap.source] = found.get(gap.source, 0) + gap.count
    return found


def _fitting(length_ms: int, period_ms: int) -> int:
    return max(0, length_ms // period_ms) if period_ms else 0


def _ms(moment: datetime | None) -> int:
    return round(moment.timestamp() * 1000) if moment else 0
