"""Lists what needs a person, for the top of an app's home page: firing alerts, hosts that are down, lost data.

Enter by ``attention_of``; ``firing_by_host`` counts alerts for the table of hosts.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Min

from alerts.models import Alert, Rule
from alerts.rules import State
from spm.accounts.models import App

SHOWN = 8


@dataclass(frozen=True, slots=True)
class FiringAlert:
    """A firing alert as the page draws it."""

    rule: Rule
    subject: str  # the labels that tell it from the rule's other alerts
    value: float | None
    since_ms: int


@dataclass(frozen=True, slots=True)
class Attention:
    """What needs a person; ``evaluated_ms``: the time up to which all enabled rules were evaluated, 0 without rules."""

    firing: Sequence[FiringAlert]
    firing_count: int
    failing: Sequence[Rule]  # whose last evaluation failed
    evaluated_ms: int

    @property
    def more(self) -> int:
        """Firing alerts that are not listed."""
        return self.firing_count - len(self.firing)


def attention_of(app: App) -> Attention:
    """List the newest firing alerts of an app, and its rules that cannot be evaluated."""
    rules = Rule.objects.filter(app=app, deleted_ms=None, enabled=True)
    alerts = Alert.objects.filter(rule__in=rules, state=State.FIRING.value).select_related("rule").order_by("-since_ms")
    evaluated_ms = rules.aggregate(first=Min("evaluated_ms"))["first"]
    firing = [FiringAlert(each.rule, subject_of(each.labels), each.value, each.since_ms) for each in alerts[:SHOWN]]
    return Attention(firing, alerts.count(), list(rules.exclude(error="")[:SHOWN]), evaluated_ms or 0)


def firing_by_host(app: App) -> Mapping[str, int]:
    """Count the firing alerts of each host."""
    alerts = Alert.objects.filter(rule__app=app, rule__deleted_ms=None, rule__enabled=True, state=State.FIRING.value)
    return Counter(labels["host"] for labels in alerts.values_list("labels", flat=True) if "host" in labels)


def subject_of(labels: Mapping[str, str]) -> str:
    """Name a series: its host first, then its other labels."""
    host = labels.get("host", "")
    others = [f"{name}={value}" for name, value in sorted(labels.items()) if name not in ("host", "__name__")]
    return " · ".join(filter(None, (host, ", ".join(others)))) or "all series"
