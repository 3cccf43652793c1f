"""Reads which alerts fired in a range of time, and gathers them in lanes: by rule, or by the values of a label.

That a rule could not be judged is no incident, and neither is an alert that never was by what is known now. Matchers
see labels as policies and silences do. Enter by ``read_incidents``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Q, QuerySet

from alerts.history import limits
from alerts.models import Aspect, Episode, EpisodeStatus
from alerts.models.telling import Acknowledgement
from alerts.telling.alert_facts import matched_labels
from alerts.telling.decide.matchers import read_matchers, select
from spm.errors import BadQuery

BY_RULE = ""


@dataclass(frozen=True, slots=True)
class IncidentQuery:
    """Which alerts: those of an organisation that fired at any time of [from, to). Empty texts and None choose all.

    ``label``: the label whose values make the lanes; without one, the rules do.
    """

    organisation: int
    from_ms: int
    to_ms: int
    app: int | None = None
    severity: str = ""
    matchers: str = ""
    label: str = BY_RULE

    def select(self) -> QuerySet[Episode]:
        """Select what the database can choose, newest first."""
        rows = Episode.objects.filter(rule__app__organisation=self.organisation, rule__app__going=None)
        rows = rows.filter(Q(end_ms=None) | Q(end_ms__gt=self.from_ms), start_ms__lt=self.to_ms)
        rows = rows.filter(status__in=(EpisodeStatus.OPEN, EpisodeStatus.ENDED)).exclude(aspect=Aspect.ERROR)
        if self.app is not None:
            rows = rows.filter(rule__app=self.app)
        if self.severity:
            rows = rows.filter(severity=self.severity)
        return rows.select_related("rule__app", "rule__group").order_by("-start_ms", "-pk")


@dataclass(frozen=True, slots=True)
class Incident:
    """An alert, its labels as policies see them, and who has taken it."""

    episode: Episode
    labels: Mapping[str, str]
    taken: Acknowledgement | None

    @property
    def acknowledged_after_ms(self) -> int | None:
        """How long after it became known somebody took it first; None if nobody has."""
        return None if self.taken is None else max(self.taken.first_ms - self.episode.created_ms, 0)

    @property
    def lasted_ms(self) -> int | None:
        """How long it fired; None while it goes on."""
        return None if self.episode.end_ms is None else self.episode.end_ms - self.episode.start_ms


@dataclass(frozen=True, slots=True)
class IncidentLane:
    """Incidents of one rule, or with one value of a label, newest first. ``rule`` is 0 for a value."""

    name: str
    rule: int
    incidents: Sequence[Incident]

    @property
    def open(self) -> int:
        """How many of them go on."""
        return sum(each.episode.end_ms is None for each in self.incidents)


@dataclass(frozen=True, slots=True)
class Incidents:
    """The incidents of a range in lanes: those with open ones first, then by the newest. ``is_cut``: there are more."""

    lanes: Sequence[IncidentLane]
    is_cut: bool

    @property
    def all(self) -> list[Incident]:
        """All incidents, by lane."""
        return [each for lane in self.lanes for each in lane.incidents]

    @property
    def open(self) -> int:
        """How many go on."""
        return sum(lane.open for lane in self.lanes)

    @property
    def acknowledged(self) -> int:
        """How many somebody has taken."""
        return sum(each.taken is not None for each in self.all)

    @property
    def mean_to_acknowledge_ms(self) -> int | None:
        """The mean time until somebody took an alert, of those that were taken."""
        return _mean(each.acknowledged_after_ms for each in self.all)

    @property
    def mean_to_resolve_ms(self) -> int | None:
        """The mean time from the first firing step to the end, of those that are over."""
        return _mean(each.lasted_ms for each in self.all)


def read_incidents(query: IncidentQuery) -> Incidents:
    """Read the incidents of a range; raises ``BadQuery`` for matchers or a range that cannot be."""
    if not 0 < query.to_ms - query.from_ms <= limits.RANGE_MS_MAX:
        raise BadQuery("a range of incidents ends after its beginning, and at most 400 days later")
    wanted = read_matchers(query.matchers) if query.matchers.strip() else ()
    episodes = list(query.select()[: limits.INCIDENTS_MAX + 1])
    is_cut = len(episodes) > limits.INCIDENTS_MAX
    episodes = episodes[: limits.INCIDENTS_MAX]
    labels = [matched_labels(each) for each in episodes]
    taken = _taken(episodes)
    incidents = [
        Incident(episode, its_labels, taken.get(episode.pk))
        for episode, its_labels, is_chosen in zip(episodes, labels, select(wanted, labels), strict=True)
        if is_chosen
    ]
    lanes: dict[tuple[str, int], list[Incident]] = {}
    for each in incidents:
        lanes.setdefault(_lane(each, query.label), []).append(each)
    in_order = [IncidentLane(name, rule, own) for (name, rule), own in lanes.items()]
    in_order.sort(key=lambda lane: not lane.open)  # stable: by the newest among equals
    return Incidents(in_order, is_cut)


def _lane(incident: Incident, label: str) -> tuple[str, int]:
    rule = incident.episode.rule
    return (incident.labels.get(label, ""), 0) if label else (rule.name, rule.pk)


def _taken(episodes: Sequence[Episode]) -> dict[int, Acknowledgement]:
    numbers = [each.pk for each in episodes]
    taken: dict[int, Acknowledgement] = {}
    for first in range(0, len(numbers), 500):  # databases bound the parameters of a statement
        rows = Acknowledgement.objects.filter(episode__in=numbers[first : first + 500])
        taken |= {row.episode_id: row for row in rows.select_related("by", "receiver")}
    return taken


def _mean(values: Iterable[int | None]) -> int | None:
    known = [each for each in values if each is not None]
    return round(sum(known) / len(known)) if known else None
