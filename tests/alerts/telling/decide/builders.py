"""Makes the values of telling for tests, with what matters named."""

from typing import Any

from alerts.telling.decide.episodes import EpisodeView, Level
from alerts.telling.decide.matchers import Matchers, read_matchers

T0 = 1_700_000_000_000
MINUTE = 60_000
HOUR = 60 * MINUTE


def episode(**changes: Any) -> EpisodeView:
    """An open warning of host a that began at ``T0`` and was recorded then."""
    labels = {"alertname": "CPU", "host": "a", **changes.pop("labels", {})}
    end_ms = changes.pop("end_ms", None)
    level = changes.pop("level", Level.OPEN if end_ms is None else Level.ENDED)
    fields: dict[str, Any] = {"id": 1, "severity": 1, "start_ms": T0, "created_ms": T0, **changes}
    return EpisodeView(labels=labels, end_ms=end_ms, level=level, **fields)


def matchers(text: str) -> Matchers:
    """Parse matchers."""
    return read_matchers(text)
