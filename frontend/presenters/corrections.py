"""What people ask when they take data out: words to a draft, the draft to numbers with past alerts beside them.

Pages, the REST interface and the command share it: ``read`` understands the words, ``look`` counts, ``take_out`` acts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from alerts import past_alerts
from rollups.retraction import Draft, Preview, RetractionResult
from rollups.services import retractions as services_retractions
from rollups.services import runs as services_runs
from rollups.services.retractions import Actor
from spm.accounts.models import App
from spm.clock import moment
from spm.errors import BadQuery
from spm.query.promql.planning.planner import parse_selector
from spm.store.matchers import Matcher

NAMES_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Look:
    """What a draft would hide, and how many past alerts looked at it."""

    preview: Preview
    alerts: int

    def words(self) -> str:
        """``1,234 samples in 5 series, 3 hours, 2 past alerts``."""
        found = self.preview
        parts = [
            f"{counted(found.samples, 'sample')} in {found.series:,} series",
            counted(found.hours, "hour"),
            counted(self.alerts, "past alert"),
        ]
        return f"{'at least ' if found.at_least else ''}{', '.join(parts)}"

    def lines(self) -> list[str]:
        """The words, and what else is worth knowing before the act."""
        found = self.preview
        if not found.samples:
            return [self.words()]
        lines = [self.words(), f"between {_shown(found.first_ms)} and {_shown(found.last_ms)}"]
        lines.append(f"from {_few(found.sources)}; metrics {_few(found.metrics)}")
        if found.restored:
            lines.append(f"{counted(found.restored, 'sample')} of these show an older value again")
        if found.sealed:
            lines.append(f"{counted(found.sealed, 'hour')} past retention stay as they are")
        return lines


def counted(number: int, noun: str) -> str:
    """``1 hour``, ``2 hours``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def read(asked: Mapping[str, Any], author: str) -> Draft:
    """The draft of what was asked: ``series`` is a PromQL selector, times are ms. Raises ``BadQuery``."""
    series = (asked.get("series") or "").strip()
    return Draft(
        source=(asked.get("source") or "").strip(),
        matchers=_selected(series) if series else (),
        write_from_ms=asked.get("write_from"),
        write_to_ms=asked.get("write_to"),
        data_from_ms=asked.get("data_from"),
        data_to_ms=asked.get("data_to"),
        reason=asked.get("reason") or "",
        author=author,
    )


def _selected(series: str) -> tuple[Matcher, ...]:
    try:
        return parse_selector(series)
    except BadQuery as error:
        raise BadQuery(f"the series cannot be read: {error}", error.position) from error


def look(app: App, draft: Draft) -> Look:
    """Count. Raises ``Refused`` for a draft that cannot be."""
    found = services_retractions.preview(services_runs.site(), app, draft)
    return Look(found, _past_alerts(app, found))


def take_out(app: App, draft: Draft, by: Actor) -> tuple[RetractionResult, Look]:
    """Count, and put it in force. Raises ``Refused``."""
    done, found, alerts = services_retractions.retract(
        services_runs.site(), app, draft, by, alerts_of=lambda found: _past_alerts(app, found)
    )
    return done, Look(found, alerts)


def _past_alerts(app: App, found: Preview) -> int:
    if found.first_ms is None or found.last_ms is None:
        return 0
    return past_alerts.count_fired(app.pk, found.metrics, found.first_ms, found.last_ms)


def _shown(ms: int | None) -> str:
    return "" if ms is None else moment(ms).isoformat(" ", "seconds")


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return f"{', '.join(names[:NAMES_SHOWN])}{more}"
