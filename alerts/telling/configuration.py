"""Reads the rows that say who is told and when not, and turns them and episodes into the values of ``decide``.

A row whose matchers cannot be read (any more: bounds and RE2 change with versions) holds nobody up, and hides nothing:
a silence, a time of quiet or an inhibition is left out; a policy matches all that comes to it, and others go on.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Exists, Model, OuterRef

from alerts.models import Aspect, Episode, EpisodeStatus, Instance, Lane, Rule, Severity
from alerts.models.telling import ContactPoint, EscalationStep, Inhibition, MuteTiming, Policy, Receiver, Silence
from alerts.telling import limits
from alerts.telling.alert_facts import matched_labels
from alerts.telling.decide import covers, inhibition, routing, windows
from alerts.telling.decide.episodes import EpisodeView, Level
from alerts.telling.decide.matchers import Matchers, read_matchers
from alerts.telling.decide.routing import Escalation, PolicyNode
from alerts.telling.decide.timing import Waits
from spm.errors import SpmError

_LOG = logging.getLogger(__name__)
SEVERITY_RANKS = {Severity.INFO: 0, Severity.WARNING: 1, Severity.CRITICAL: 2}
_LEVELS = {EpisodeStatus.OPEN: Level.OPEN, EpisodeStatus.VOID: Level.VOID}


@dataclass(frozen=True, slots=True)
class Configuration:
    """What the people of an organisation have set about telling."""

    policies: tuple[PolicyNode, ...]
    silences: tuple[covers.Silence, ...]
    timings: tuple[windows.MuteTiming, ...]
    inhibitions: tuple[inhibition.Inhibition, ...]


def read_configuration(organisation: int, now_ms: int) -> Configuration:
    """Read the configuration of an organisation. Silences that ended long ago are left out."""
    ended_ms = now_ms - limits.WINDOWS_SPAN_MS
    silences = Silence.objects.filter(organisation=organisation, to_ms__gt=ended_ms)[: limits.SILENCES_MAX]
    timings = MuteTiming.objects.filter(organisation=organisation)
    inhibitions = Inhibition.objects.filter(organisation=organisation)
    return Configuration(
        policies=read_policies(organisation),
        silences=tuple(
            covers.Silence(row.pk, matchers, row.from_ms, row.to_ms)
            for row in silences
            if (matchers := _matchers(row, row.matchers)) is not None
        ),
        timings=tuple(
            _timing(row, matchers) for row in timings if (matchers := _matchers(row, row.matchers)) is not None
        ),
        inhibitions=tuple(
            inhibition.Inhibition(row.pk, source, target, tuple(row.equal))
            for row in inhibitions
            if (source := _matchers(row, row.source)) is not None and (target := _matchers(row, row.target)) is not None
        ),
    )


def next_windows_of(row: MuteTiming, now_ms: int) -> list[covers.Cover]:
    """Return when a maintenance window holds now or next, and the two times after that."""
    return windows.next_windows(_timing(row, read_matchers(row.matchers)), now_ms, limits.WINDOWS_SHOWN)


def view(episode: Episode) -> EpisodeView:
    """Return the episode as the decisions see it."""
    return EpisodeView(
        id=episode.pk,
        labels=matched_labels(episode),
        severity=SEVERITY_RANKS[Severity(episode.severity)],
        start_ms=episode.start_ms,
        end_ms=episode.end_ms,
        level=_LEVELS.get(EpisodeStatus(episode.status), Level.ENDED),
        created_ms=episode.created_ms,
        merged=episode.status == EpisodeStatus.MERGED,
        found_late=episode.found_late,
        schedule=None if episode.aspect == Aspect.ERROR else schedule_of(episode.rule),
    )


def schedule_of(rule: Rule) -> windows.Schedule | None:
    """Return when the rule is told, or None for always. That it cannot be judged is told at any time."""
    cron = rule.schedule_cron
    return windows.Schedule(cron, rule.schedule_zone, rule.schedule_ms) if cron else None


def next_scheduled(rule: Rule, now_ms: int) -> list[covers.Cover]:
    """Return when the rule is told now or next, and the two times after that; nothing if always."""
    schedule = schedule_of(rule)
    return windows.next_windows(schedule, now_ms, limits.WINDOWS_SHOWN) if schedule else []


def judged_positions(apps: Iterable[int]) -> dict[int, int]:
    """Return up to when each app is judged. An app without anything to judge has none: nothing of it is waited for."""
    rules = Rule.objects.filter(app=OuterRef("app"), enabled=True, deleted_ms=None)
    instances = Instance.objects.filter(rule__app=OuterRef("app"))
    lanes = Lane.objects.filter(Exists(rules) | Exists(instances), app__in=set(apps))
    return dict(lanes.values_list("app", "position_ms"))


def _timing(row: MuteTiming, matchers: Matchers) -> windows.MuteTiming:
    return windows.MuteTiming(row.pk, row.name, matchers, row.cron, row.zone, row.duration_ms)


def read_policies(organisation: int) -> tuple[PolicyNode, ...]:
    """Read the tree of policies of an organisation, with the times at which steps of escalation come now."""
    rows = list(Policy.objects.filter(organisation=organisation)[: limits.POLICIES_MAX])
    if not rows:
        return ()
    points = ContactPoint.objects.filter(organisation=organisation).prefetch_related("receivers")
    receivers = defaultdict[int, frozenset[int]](frozenset)  # one may be deleted between two statements
    receivers |= {point.pk: frozenset(each.pk for each in point.receivers.all()) for point in points}
    unreachable = frozenset(each.pk for point in points for each in point.receivers.all() if _is_unreachable(each))
    steps: dict[int, list[Escalation]] = defaultdict(list)
    for step in EscalationStep.objects.filter(policy__organisation=organisation):
        steps[step.policy_id].append(Escalation(step.after_ms, receivers[step.contact_point_id]))
    came = {row.pk: routing.escalation(receivers[row.contact_point_id], steps[row.pk], unreachable) for row in rows}
    return _children(rows, None, receivers, came)


def _is_unreachable(receiver: Receiver) -> bool:
    """Whether the receiver is failing, or has not agreed to get notifications."""
    return receiver.confirmed_ms is None or receiver.dead_in_a_row >= limits.DEAD_IN_A_ROW_MAX


def _matchers(row: Model, text: str) -> Matchers | None:
    """Return the matchers of a row; ``None``, and a line in the log, if they cannot be read."""
    try:
        return read_matchers(text)
    except SpmError as error:
        _LOG.error("%s %s cannot be read: %s", row._meta.verbose_name, row.pk, error)
        return None


def _children(
    rows: Sequence[Policy],
    parent: int | None,
    receivers: Mapping[int, frozenset[int]],
    escalation: Mapping[int, tuple[Escalation, ...]],
) -> tuple[PolicyNode, ...]:
    read = [(row, _matchers(row, row.matchers)) for row in rows if row.parent_id == parent]
    return tuple(
        PolicyNode(
            id=row.pk,
            matchers=matchers or (),
            receivers=receivers[row.contact_point_id],
            group_by=tuple(row.group_by),
            waits=Waits(row.wait_ms, row.interval_ms, row.repeat_ms),
            goes_on=row.goes_on or matchers is None,
            children=_children(rows, row.pk, receivers, escalation),
            escalation=escalation[row.pk],
        )
        for row, matchers in read
    )
