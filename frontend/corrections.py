"""What people ask when they take data out: words to a draft, the draft to numbers with past alerts beside them.

Pages, the REST interface and the command share it: ``read`` understands the words, ``look`` counts, ``take_out`` acts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from alerts import past
from rollups import conduct, corrected
from rollups.corrected import Actor
from rollups.retract import Done, Draft, Preview
from spm.accounts.models import App
from spm.query.promql.parse import parse_selector


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


def counted(number: int, noun: str) -> str:
    """``1 hour``, ``2 hours``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def read(asked: Mapping[str, Any], author: str) -> Draft:
    """The draft of what was asked: ``series`` is a PromQL selector, times are ms. Raises ``BadQuery``."""
    series = (asked.get("series") or "").strip()
    return Draft(
        source=(asked.get("source") or "").strip(),
        matchers=parse_selector(series) if series else (),
        write_from_ms=asked.get("write_from"),
        write_to_ms=asked.get("write_to"),
        data_from_ms=asked.get("data_from"),
        data_to_ms=asked.get("data_to"),
        reason=asked.get("reason") or "",
        author=author,
    )


def look(app: App, draft: Draft) -> Look:
    """Count. Raises ``Refused`` for a draft that cannot be."""
    found = corrected.preview(conduct.site(), app, draft)
    return Look(found, _past_alerts(app, found))


def take_out(app: App, draft: Draft, by: Actor) -> tuple[Done, Look]:
    """Count, and put it in force. Raises ``Refused``."""
    done, found, alerts = corrected.retract(
        conduct.site(), app, draft, by, alerts_of=lambda found: _past_alerts(app, found)
    )
    return done, Look(found, alerts)


def _past_alerts(app: App, found: Preview) -> int:
    if found.first_ms is None or found.last_ms is None:
        return 0
    return past.fired(app.pk, found.metrics, found.first_ms, found.last_ms)
