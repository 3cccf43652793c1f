"""Reads a retraction as people write it, words its preview, and has ``rollups.retraction`` check and make it.

A preview also counts the past alerts that depend on the samples. Pages, the REST interface and the command share this
module. Enter by ``parse_draft``, ``preview_draft`` and ``retract``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from alerts import past_alerts
from rollups.retraction import Draft, Preview, RetractionResult
from rollups.services import retractions as services_retractions
from rollups.services import runs as services_runs
from rollups.services.retractions import Actor
from spm.accounts.models import App
from spm.clock import moment
from spm.errors import BadQuery
from spm.query.promql.planning.planner import parse_selector
from spm.store.matchers import METRIC_NAME, Matcher
from spm.store.versions.retractions import Retraction

NAMES_SHOWN = 8
METRICS_DRAWN = 3
AROUND_MS = 300_000  # at least so much is drawn before and after the samples
DRAFT_FIELDS = ("source", "series", "write_from", "write_to", "data_from", "data_to")


@dataclass(frozen=True, slots=True)
class DraftPreview:
    """The samples a draft would hide, and the number of past alerts that depend on them."""

    counts: Preview
    past_alerts: int

    def summary(self) -> str:
        """Write ``1,234 samples in 5 series, 3 hours, 2 past alerts``."""
        counts = self.counts
        parts = [
            f"{count_noun(counts.samples, 'sample')} in {counts.series:,} series",
            count_noun(counts.hours, "hour"),
            count_noun(self.past_alerts, "past alert"),
        ]
        return f"{'at least ' if counts.at_least else ''}{', '.join(parts)}"

    def lines(self) -> list[str]:
        """Write the summary and further facts, one per line."""
        counts = self.counts
        if not counts.samples:
            return [self.summary()]
        lines = [self.summary(), f"between {_time_text(counts.first_ms)} and {_time_text(counts.last_ms)}"]
        noun = "metric" if len(counts.metrics) == 1 else "metrics"
        lines.append(f"from {_list_names(counts.sources)}; {noun} {_list_names(counts.metrics)}")
        if counts.restored:
            lines.append(f"{count_noun(counts.restored, 'sample')} of these will show an older value again")
        if counts.sealed:
            lines.append(f"{count_noun(counts.sealed, 'hour')} past retention do not change")
        return lines


def count_noun(number: int, noun: str) -> str:
    """Write ``1 hour``, ``2 hours``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def parse_draft(fields: Mapping[str, Any], author: str) -> Draft:
    """Read a draft: ``series`` is a PromQL selector, times are ms. Raises ``BadQuery``."""
    series = (fields.get("series") or "").strip()
    return Draft(
        source=(fields.get("source") or "").strip(),
        matchers=_parse_series(series) if series else (),
        write_from_ms=fields.get("write_from"),
        write_to_ms=fields.get("write_to"),
        data_from_ms=fields.get("data_from"),
        data_to_ms=fields.get("data_to"),
        reason=fields.get("reason") or "",
        author=author,
    )


def _parse_series(series: str) -> tuple[Matcher, ...]:
    try:
        return parse_selector(series)
    except BadQuery as error:
        raise BadQuery(f"the series selector is not valid: {error}", error.position) from error


def planned(app: App, fields: Mapping[str, Any]) -> Retraction:
    """Return the retraction that a draft would make, for charts as if it were in force. Raises ``Refused``."""
    draft = parse_draft({"reason": "this draft", **fields}, "you")
    return services_retractions.planned(services_runs.site(), app, draft)


@dataclass(frozen=True, slots=True)
class DrawnDraft:
    """What the page draws of a draft: a chart of each of its first metrics, around the samples that it hides."""

    exprs: Sequence[tuple[str, str]]  # (metric, selector)
    from_ms: int
    to_ms: int
    draft: str  # for the request of the charts
    further: int  # metrics that are not drawn


def has_draft(fields: Mapping[str, Any]) -> bool:
    """Whether the fields of a form narrow anything."""
    return any(fields.get(name) for name in DRAFT_FIELDS)


def draw_draft(fields: Mapping[str, Any], preview: DraftPreview, now_ms: int) -> DrawnDraft | None:
    """Return what to draw of a draft; None if it hides nothing."""
    counts = preview.counts
    if counts.first_ms is None or counts.last_ms is None:
        return None
    matchers = [each for each in parse_draft(fields, "").matchers if each.name != METRIC_NAME]  # it meets all of them
    around_ms = max((counts.last_ms - counts.first_ms) // 2, AROUND_MS)
    return DrawnDraft(
        [
            (name, services_retractions.write_selector([Matcher(METRIC_NAME, "=", name), *matchers]))
            for name in counts.metrics[:METRICS_DRAWN]
        ],
        max(counts.first_ms - around_ms, 0),
        min(counts.last_ms + around_ms, max(now_ms, counts.last_ms)),
        orjson.dumps({name: value for name, value in fields.items() if name in DRAFT_FIELDS and value}).decode(),
        max(len(counts.metrics) - METRICS_DRAWN, 0),
    )


def preview_draft(app: App, draft: Draft) -> DraftPreview:
    """Count what the draft would hide. Raises ``Refused`` for an impossible draft."""
    counts = services_retractions.preview(services_runs.site(), app, draft)
    return DraftPreview(counts, _count_past_alerts(app, counts))


def retract(app: App, draft: Draft, by: Actor) -> tuple[RetractionResult, DraftPreview]:
    """Count what the draft hides, and put it in force. Raises ``Refused``."""
    result, counts, alerts = services_retractions.retract(
        services_runs.site(), app, draft, by, alerts_of=lambda counts: _count_past_alerts(app, counts)
    )
    return result, DraftPreview(counts, alerts)


def _count_past_alerts(app: App, counts: Preview) -> int:
    if counts.first_ms is None or counts.last_ms is None:
        return 0
    return past_alerts.count_fired(app.pk, counts.metrics, counts.first_ms, counts.last_ms)


def _time_text(ms: int | None) -> str:
    return "" if ms is None else moment(ms).isoformat(" ", "seconds")


def _list_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return f"{', '.join(names[:NAMES_SHOWN])}{more}"
