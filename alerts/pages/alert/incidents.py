"""The page of incidents: what fired in a range of time, a line for each rule or label value, with who took it.

Bars are alerts, ticks on them say when somebody took them; notes and deploys stand above. Each line opens to a table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from alerts.history import limits
from alerts.history.incidents import Incident, IncidentLane, IncidentQuery, Incidents, read_incidents
from alerts.history.notes import notes_of
from alerts.history.timeline import WIDTH, Bar, Timeline
from alerts.models import Severity
from alerts.pages.scope import app_of, whole_number
from alerts.pages.views import page
from spm.accounts.models import App
from spm.clock import SystemClock
from spm.errors import SpmError
from spm.events.models import Event
from spm.limits import HOUR_MS

_clock = SystemClock()
_DAY_MS = 24 * HOUR_MS
_RANGES = {"1h": HOUR_MS, "24h": _DAY_MS, "7d": 7 * _DAY_MS, "30d": 30 * _DAY_MS, "90d": 90 * _DAY_MS}
_RANGE = "7d"
_SEVERITIES = [value for value, _ in Severity.choices]
_MARKS_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Row:
    """An incident of a lane as its table lists it."""

    incident: Incident
    notes: Sequence[Event]


@dataclass(frozen=True, slots=True)
class LaneRow:
    """A lane as the page draws it: its bars, the ticks of acknowledgements, and its newest incidents."""

    lane: IncidentLane
    bars: Sequence[Bar]
    ticks: Sequence[float]
    rows: Sequence[Row]

    @property
    def left_out(self) -> int:
        """How many incidents its table does not list."""
        return len(self.lane.incidents) - len(self.rows)


@login_required
@require_GET
def incident_list(request: HttpRequest) -> HttpResponse:
    """Show what fired in an app within a range."""
    app, given = app_of(request), request.GET
    chosen = {name: text for name in ("range", "severity", "matchers", "by") if (text := given.get(name, "").strip())}
    if chosen.get("range") not in _RANGES:
        chosen.pop("range", None)
    if chosen.get("severity") not in _SEVERITIES:
        chosen.pop("severity", None)
    now_ms = _clock.now_ms()
    line = Timeline(now_ms - _RANGES[chosen.get("range", _RANGE)], now_ms)
    start = max(whole_number(given.get("start", "")), 0)
    return page(
        request,
        "incidents",
        app,
        chosen=chosen,
        severities=_SEVERITIES,
        ranges=_RANGES,
        range=chosen.get("range", _RANGE),
        line=line,
        width=WIDTH,
        **_listed(app, chosen, line, start),
    )


def _listed(app: App, chosen: Mapping[str, str], line: Timeline, start: int) -> dict[str, Any]:
    query = IncidentQuery(
        app.organisation_id,
        line.from_ms,
        line.to_ms,
        app=app.pk,
        severity=chosen.get("severity", ""),
        matchers=chosen.get("matchers", ""),
        label=chosen.get("by", ""),
    )
    try:
        incidents = read_incidents(query)
    except SpmError as error:
        return {"error": str(error)}
    shown = incidents.lanes[start : start + limits.LANES_SHOWN]
    end = start + limits.LANES_SHOWN
    return {
        "incidents": incidents,
        "lanes": _rows(app, shown, line),
        "following": end if end < len(incidents.lanes) else 0,
        "events": _happened(app, line),
        "labels": _label_names(incidents),
    }


def _rows(app: App, lanes: Sequence[IncidentLane], line: Timeline) -> list[LaneRow]:
    listed = [each.episode for lane in lanes for each in lane.incidents[: limits.LISTED_MAX]]
    notes = notes_of(app.pk, listed, most=limits.NOTES_MAX)
    return [
        LaneRow(
            lane,
            [line.bar(each.episode.start_ms, each.episode.end_ms, _style(each)) for each in lane.incidents],
            line.marks(each.taken.first_ms for each in lane.incidents if each.taken is not None),
            [Row(each, notes.get(each.episode.pk, ())) for each in lane.incidents[: limits.LISTED_MAX]],
        )
        for lane in lanes
    ]


def _style(incident: Incident) -> str:
    return f"{incident.episode.severity} open" if incident.episode.end_ms is None else str(incident.episode.severity)


def _happened(app: App, line: Timeline) -> list[tuple[float, Event]]:
    """Return what people and programs posted within the range, and where it lies on the line."""
    posted = Event.objects.filter(app=app, is_posted=True, at_ms__gte=line.from_ms, at_ms__lt=line.to_ms)
    return [(line.place(each.at_ms), each) for each in posted[:_MARKS_SHOWN]]


def _label_names(incidents: Incidents) -> list[str]:
    """Return the names of labels by which lanes can be made."""
    names = {name for each in incidents.all for name in each.labels}
    return sorted(names - {"alertname", "__name__", "app"})
