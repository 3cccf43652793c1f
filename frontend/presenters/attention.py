"""Lists what needs a person, for the top of an app's home page: firing alerts, hosts that are down, lost data.

Enter by ``attention_of``; ``firing_by_host`` counts alerts for the table of hosts, ``unacknowledged`` for the bar.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from alerts.judging.automaton import ALERTING
from alerts.judging.reconciliation import EpisodeStatus
from alerts.models import Aspect, Episode, Instance, Lane, Rule
from ingest.models import RejectedLine
from spm.accounts.models import App

SHOWN = 8
REJECTED_MS = 3_600_000  # an hour after the last one, a sender is mended or nobody minds


@dataclass(frozen=True, slots=True)
class FiringAlert:
    """A firing alert as the page draws it."""

    rule: Rule
    subject: str  # the labels that tell it from the rule's other alerts
    value: float | None
    since_ms: int


@dataclass(frozen=True, slots=True)
class Attention:
    """What needs a person; ``evaluated_ms``: the step up to which the rules are judged, 0 without rules."""

    firing: Sequence[FiringAlert]
    firing_count: int
    failing: Sequence[Rule]  # which cannot be judged
    rejected: int  # lines of the last hour, of those that are stored
    rejected_reason: str  # of the newest one
    evaluated_ms: int

    @property
    def more(self) -> int:
        """Firing alerts that are not listed."""
        return self.firing_count - len(self.firing)

    @property
    def is_needed(self) -> bool:
        """Whether there is anything, beside hosts that are down."""
        return bool(self.firing_count or self.failing or self.rejected)


def attention_of(app: App, now_ms: int) -> Attention:
    """List the newest firing alerts of an app, its rules that cannot be evaluated, and lines rejected just now."""
    rules = Rule.objects.filter(app=app, deleted_ms=None, enabled=True)
    alerts = _firing(app).select_related("rule").order_by("-start_ms")
    shown = alerts[:SHOWN]
    firing = [FiringAlert(each.rule, subject_of(each.labels), each.value, each.start_ms or 0) for each in shown]
    failing = list(rules.filter(instances__aspect=Aspect.ERROR)[:SHOWN])
    lane = Lane.objects.filter(app=app).first() if rules.exists() else None
    rejected = RejectedLine.objects.filter(app=app, time_ms__gt=now_ms - REJECTED_MS)
    newest = rejected.first()
    return Attention(
        firing,
        alerts.count(),
        failing,
        rejected.count() if newest else 0,
        newest.reason if newest else "",
        lane.position_ms if lane else 0,
    )


def firing_by_host(app: App) -> Mapping[str, int]:
    """Count the firing alerts of each host."""
    labels_of_alerts = _firing(app).values_list("labels", flat=True)
    return Counter(labels["host"] for labels in labels_of_alerts if "host" in labels)


def unacknowledged(app: App, now_ms: int) -> int:
    """Count the open alerts of an app that no person has taken."""
    rules = Rule.objects.filter(app=app, deleted_ms=None, enabled=True)
    alerts = Episode.objects.filter(rule__in=rules, status=EpisodeStatus.OPEN).exclude(aspect=Aspect.ERROR)
    return alerts.exclude(acknowledgement__until_ms__gt=now_ms).count()


def _firing(app: App) -> QuerySet[Instance]:
    rules = Rule.objects.filter(app=app, deleted_ms=None, enabled=True)
    return Instance.objects.filter(rule__in=rules, phase__in=ALERTING).exclude(aspect=Aspect.ERROR)


def subject_of(labels: Mapping[str, str]) -> str:
    """Name a series: its host first, then its other labels."""
    host = labels.get("host", "")
    others = [f"{name}={value}" for name, value in sorted(labels.items()) if name not in ("host", "__name__")]
    return " · ".join(filter(None, (host, ", ".join(others)))) or "all series"
