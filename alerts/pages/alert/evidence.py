"""What an alert rests on: the operation that judged it, what was known then, and its values then and now. Reads only.

The values are those of the rule's version at that time. Enter by ``evidence_of``.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from django.conf import settings

from alerts import journal
from alerts.backtesting.backtests import BacktestReport, PastEpisode
from alerts.backtesting.ranges import ValueRanges
from alerts.expressions import admitted, read_points
from alerts.judging import limits
from alerts.judging.answers import Answer
from alerts.judging.kinds import Kind
from alerts.judging.knowledge.sight import KeptKnowledge
from alerts.judging.lane_plan import aligned_ms
from alerts.judging.versions import RuleVersion, Steps
from alerts.models import AlertEvent, Aspect, Episode, Operation, RuleVersionRow
from alerts.pages.editor.picture import Picture, draw
from spm import query
from spm.errors import SpmError
from spm.limits import HOUR_MS, RULE_PERIOD_MS

_SPAN_MAX_MS = 24 * HOUR_MS
_AFTER_MS = HOUR_MS // 4


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture of the values, or why there is none."""

    title: str
    picture: Picture | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What began the alert. ``complete_ms``: up to when everything accepted was known (E); None if it was not kept."""

    event: AlertEvent | None
    operation: Operation | None
    version: RuleVersion | None
    complete_ms: int | None
    charts: tuple[Chart, ...]


def evidence_of(episode: Episode, *, now_ms: int) -> Evidence:
    """Return the evidence of an alert."""
    event = _first_event(episode)
    lane_operations = Operation.objects.filter(lane__app=episode.rule.app_id)
    operation = lane_operations.filter(seq=event.seq).first() if event is not None else None
    version = _version_at(episode)
    knowledge = operation.knowledge if operation is not None else None
    charts = _charts(episode, version, knowledge, now_ms) if episode.aspect != Aspect.ERROR else ()
    return Evidence(event, operation, version, _complete_ms(episode.rule.app_id, knowledge), charts)


def _first_event(episode: Episode) -> AlertEvent | None:
    """Return the transition with which the alert began, as it was judged first."""
    own = AlertEvent.objects.filter(rule=episode.rule_id, fingerprint=episode.fingerprint, aspect=episode.aspect)
    return own.filter(at_ms=episode.start_ms).order_by("seq", "pk").first()


def _version_at(episode: Episode) -> RuleVersion | None:
    rows = RuleVersionRow.objects.filter(rule=episode.rule_id, from_ms__lte=episode.start_ms).order_by("-from_ms")
    row = rows.values_list("rule", "from_ms", "until_ms", "content").first()
    return None if row is None else journal.version_from(*row)


def _complete_ms(app: int, knowledge: KeptKnowledge | None) -> int | None:
    if knowledge is None:
        return None
    query.configure(settings.SPM_STORE_URL)
    try:
        restored = query.storage_for(app).restore_knowledge(knowledge.vector, knowledge.retractions)
    except SpmError:
        return None
    return restored.vector.complete_to_ms


def _charts(
    episode: Episode, version: RuleVersion | None, knowledge: KeptKnowledge | None, now_ms: int
) -> tuple[Chart, ...]:
    if version is None or version.kind is Kind.COMPOSITE:
        return ()
    steps = _steps(episode, now_ms)
    now = _chart("As it is known now", episode, version, steps, None)
    if knowledge is None:
        return (now,)
    then_steps = Steps(steps.first_ms, max(steps.first_ms, min(steps.last_ms, _judged_to(episode))), steps.period_ms)
    return _chart("As it was known when the alert began", episode, version, then_steps, knowledge), now


def _judged_to(episode: Episode) -> int:
    """Return the last step of the picture of then: judging knew nothing later than the alert's beginning."""
    return episode.start_ms + RULE_PERIOD_MS


def _steps(episode: Episode, now_ms: int) -> Steps:
    to_ms = min(now_ms, (now_ms if episode.end_ms is None else episode.end_ms) + _AFTER_MS)
    from_ms = max(episode.start_ms - HOUR_MS, to_ms - _SPAN_MAX_MS)
    columns_ms = limits.BACKTEST_COLUMNS * RULE_PERIOD_MS
    period_ms = RULE_PERIOD_MS * max(1, -(-(to_ms - from_ms) // columns_ms))
    return Steps(aligned_ms(from_ms, period_ms), aligned_ms(to_ms, period_ms), period_ms)


def _chart(title: str, episode: Episode, version: RuleVersion, steps: Steps, knowledge: KeptKnowledge | None) -> Chart:
    labels: Mapping[str, str] = episode.labels
    app = episode.rule.app
    try:
        with admitted(app.organisation_id):
            points = read_points(app.pk, version.value_expr, labels, steps, knowledge)
    except SpmError as error:
        return Chart(title, error=str(error))
    values = np.array([[np.nan if each is None else each for each in points]], np.float64)
    ranges = ValueRanges(steps, limits.BACKTEST_COLUMNS)
    ranges.add(Answer([labels], values, ~np.isnan(values)), steps)
    fired = PastEpisode(labels, episode.aspect, episode.start_ms, episode.end_ms, "", episode.start_value)
    is_within = episode.start_ms <= steps.last_ms
    report = BacktestReport(steps.first_ms, steps.last_ms, (fired,) if is_within else (), (), (), ranges)
    return Chart(title, draw(report, version))
