"""Reads the annotations of alerts that rest on data: on the newest value, or on what their queries answer.

Judging keeps the value of a change alone, so the value of an alert that goes on is read when somebody is told of it: at
the step that was judged last, of one that is over at the last step at which it fired. ``reading_of`` says what a line
needs, ``read_texts`` reads it once for each notification, without a database, so this may run beside hand-overs. What
cannot be read keeps the text that was written with the line. Enter by ``read_texts``.
"""

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from alerts.expressions import admitted, session_as_known
from alerts.judging.answers import Read, fingerprint
from alerts.judging.kinds import Kind, value_expr
from alerts.judging.knowledge.sight import KeptKnowledge
from alerts.judging.versions import Steps
from alerts.models import Aspect, Episode, Lane, Rule
from alerts.notify.text import cut
from alerts.templating import limits, template
from alerts.templating.alert_texts import alert_annotations
from alerts.templating.functions import Query, Sample
from spm.clock import Clock, SystemClock
from spm.errors import BadQuery, SpmError
from spm.limits import RULE_PERIOD_MS

log = logging.getLogger("spm.alerts")
Texts = dict[str, dict[str, str]]  # an episode's number → its annotations


def reading_of(episode: Episode, judged_ms: int) -> dict[str, Any] | None:
    """Return what to read for the annotations of an episode, as JSON; None if they rest on nothing but the alert."""
    rule = episode.rule
    if episode.aspect != Aspect.VALUE:
        return None
    last_ms = judged_ms if episode.end_ms is None else episode.end_ms - RULE_PERIOD_MS
    at_ms = max(episode.start_ms, last_ms)
    is_first = at_ms == episode.start_ms and episode.end_ms is None
    read = [_reads(text) for text in rule.annotations.values()]
    if not any(each.query or (each.value and not is_first) for each in read):
        return None
    organisation = rule.app.organisation_id
    return {"templates": rule.annotations, "expr": value_of(rule), "at_ms": at_ms, "organisation": organisation}


def value_of(rule: Rule) -> str:
    """Return the expression of the values of a rule; a composite has none."""
    return "" if rule.kind == Kind.COMPOSITE else value_expr(Kind(rule.kind), rule.expr, rule.parameters)


def _reads(text: str) -> template.Reads:
    try:
        return template.reads(text)
    except BadQuery:
        return template.Reads()  # it was written before templates were checked so: its text says what is wrong with it


def read_texts(
    lines: Sequence[Mapping[str, Any]], known: KeptKnowledge | None = None, *, clock: Clock | None = None
) -> Texts:
    """Return the annotations of those lines that rest on data. ``known``: what judging knew; by default the present."""
    sessions, texts = dict[int, Read](), Texts()
    clock = clock or SystemClock()
    until_s = clock.monotonic() + limits.TEXTS_S
    for line in lines:
        reading = line.get("reading")
        if not reading:
            continue
        try:
            if clock.monotonic() > until_s:
                raise BadQuery("reading took too long")
            if line["app"] not in sessions:
                sessions[line["app"]] = session_as_known(line["app"], known)
            texts[str(line["episode"])] = _texts(line, reading, sessions[line["app"]], clock, until_s)
        except SpmError as error:
            log.info("the texts of alert %s are not newest: %s", line["episode"], error)
    return texts


@dataclass(frozen=True, slots=True)
class NewestData:
    """What the active alerts of an app show of data at the step that was judged last: values by rule and series."""

    values: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    query: Query | None = None


def newest_data(lane: Lane, organisation: int, rules: Iterable[Rule]) -> NewestData:
    """Read the newest values of some rules of a lane, as judging knew them. Raises ``SpmError``."""
    read = session_as_known(lane.app_id, lane.knowledge)
    steps = Steps(lane.position_ms, lane.position_ms, RULE_PERIOD_MS)
    values = {rule.pk: values_at(read, value_of(rule), steps) for rule in rules}
    return NewestData(values, querier(read, organisation, steps))


def _texts(
    line: Mapping[str, Any], reading: Mapping[str, Any], read: Read, clock: Clock, until_s: float
) -> dict[str, str]:
    steps = Steps(reading["at_ms"], reading["at_ms"], RULE_PERIOD_MS)
    values = values_at(read, reading["expr"], steps)
    value = values.get(fingerprint(line["labels"]), float(line["value"] or math.nan))
    query = querier(read, reading["organisation"], steps, is_late=lambda: clock.monotonic() > until_s)
    texts = alert_annotations(reading["templates"], line["labels"], value, query)
    return {name: cut(text, limits.ANNOTATION_CHARS_MAX) for name, text in texts.items()}


def values_at(read: Read, expr: str, steps: Steps) -> dict[str, float]:
    """Return the values of an expression at one step, by the series' fingerprint; none if it cannot be evaluated."""
    if not expr:
        return {}
    answer = read(expr, steps)
    return {
        answer.name(row): float(answer.values[row, 0]) for row in range(len(answer.labels)) if answer.present[row, 0]
    }


def querier(read: Read, organisation: int, steps: Steps, *, is_late: Callable[[], bool] = lambda: False) -> Query:
    """Return what answers the queries of templates at one step, each in a place among the organisation's queries."""

    def query(expr: str) -> list[Sample]:
        if is_late():
            raise BadQuery("the queries of the texts took too long")
        with admitted(organisation):
            answer = read(expr, steps)
        if answer.errors:
            raise BadQuery(answer.errors[0])
        if len(answer.labels) > limits.TEMPLATE_SERIES_MAX:
            raise BadQuery(
                f"a query of a text gives at most {limits.TEMPLATE_SERIES_MAX} series, not {len(answer.labels)}"
            )
        rows = zip(answer.labels, answer.values[:, 0], answer.present[:, 0], strict=True)
        return [Sample(dict(labels), float(value)) for labels, value, present in rows if present]

    return query
