"""Writes the rules of an app as rule files. What a file cannot say (receivers, hold, recovery) is left out.

Enter by ``summaries`` and ``export_file``; the rules that came from no file are exported under the name ``NATIVE``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from django.db.models import Count, Q

from alerts import rulebook
from alerts.judging.kinds import Kind, value_expr
from alerts.models import RecordingRule, Rule, RuleGroup
from alerts.rulefiles.threshold_split import join
from spm.accounts.models import App
from spm.query.formats.prometheus import duration

NATIVE = "native"
_PRODUCT_KINDS = (Kind.ANOMALY, Kind.COMPOSITE, Kind.HEARTBEAT)  # no expression says what they judge


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and indents lists."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


@dataclass(frozen=True, slots=True)
class FileSummary:
    """A rule file with the numbers of what it has."""

    name: str
    groups: int
    alerts: int
    records: int


def summaries(app: App) -> list[FileSummary]:
    """Return the rule files of the app, in the order of their names."""
    alerts = Count("rules", filter=Q(rules__deleted_ms=None), distinct=True)
    records = Count("recording_rules", distinct=True)
    rows = RuleGroup.objects.filter(app=app).order_by("file").values("file")
    counted = rows.annotate(groups=Count("pk", distinct=True), alerts=alerts, records=records)
    return [FileSummary(row["file"], row["groups"], row["alerts"], row["records"]) for row in counted]


def export_file(app: App, file: str) -> str | None:
    """Return a file of the app as YAML; None if there is none of this name."""
    if "\0" in file:  # PostgreSQL takes none
        return None
    groups = list(RuleGroup.objects.filter(app=app, file=file))
    content = [_group(group) for group in groups]
    if file == NATIVE and not groups:
        native = list(rulebook.rules_of(app).filter(group=None, enabled=True).exclude(kind__in=_PRODUCT_KINDS))
        content = [{"name": app.name, "rules": [_alert(rule, rule.alert_labels) for rule in native]}] if native else []
    return dump(content) if content else None


def dump(groups: Sequence[dict[str, Any]]) -> str:
    """Write groups as YAML."""
    return yaml.dump({"groups": list(groups)}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)


def _group(group: RuleGroup) -> dict[str, Any]:
    alerts: Iterable[Rule | RecordingRule] = rulebook.rules_of(group.app).filter(group=group)
    rules = sorted([*alerts, *RecordingRule.objects.filter(group=group)], key=lambda rule: rule.place)
    return {
        "name": group.name,
        **({"interval": duration(group.interval_ms)} if group.interval_ms else {}),
        **({"limit": group.limit} if group.limit else {}),
        **({"labels": group.labels} if group.labels else {}),
        "rules": [_alert(rule, rule.labels) if isinstance(rule, Rule) else _record(rule) for rule in rules],
    }


def _alert(rule: Rule, labels: dict[str, str]) -> dict[str, Any]:
    return {
        "alert": rule.name,
        "expr": join(value_expr(Kind(rule.kind), rule.expr, rule.parameters), rule.comparator, rule.threshold),
        **({"for": duration(rule.for_ms)} if rule.for_ms else {}),
        **({"keep_firing_for": duration(rule.keep_firing_for_ms)} if rule.keep_firing_for_ms else {}),
        **({"labels": labels} if labels else {}),
        **({"annotations": rule.annotations} if rule.annotations else {}),
    }


def _record(rule: RecordingRule) -> dict[str, Any]:
    return {"record": rule.name, "expr": rule.expr, **({"labels": rule.labels} if rule.labels else {})}
