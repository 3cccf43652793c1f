"""Rule files brought into an app: new, again, changed, pruned, dry; what stays of what people set."""

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from alerts.models import Lane, RecordingRule, Rule, RuleGroup, RuleVersionRow
from alerts.rulebook import rules_of
from alerts.rulefiles.apply import Author, Import, import_files, remove_file
from alerts.rulefiles.content import BadRuleFile
from alerts.rulefiles.export import export_file
from spm.accounts.models import App, AuditEntry
from spm.errors import LimitExceeded

NOW_MS = 1_700_000_000_000
TEXT = """
groups:
  - name: node
    interval: 30s
    labels: {team: infra}
    rules:
      - record: job:cpu:avg
        expr: avg by (job) (cpu)
      - alert: Busy
        expr: cpu{mode!="idle"} > 90
        for: 5m
        keep_firing_for: 1m
        labels: {severity: page}
        annotations:
          summary: "{{ $labels.host }} is at {{ $value | humanize }}"
      - alert: Busy
        expr: |
          sum(rate(x[5m]))
            > 3 # requests
      - alert: Absent
        expr: absent(up)
"""


def bring(app: App, text: str = TEXT, **options: Any) -> Import:
    """Import one file called node.yml; returns what it changed."""
    return import_files(app, {"node.yml": text}, by=Author(name="test"), now_ms=NOW_MS, **options)[0]


def rows(app: App) -> list[Any]:
    """Everything that an import can write."""
    tables = (Rule, RecordingRule, RuleGroup, RuleVersionRow, Lane, AuditEntry)
    return [list(table.objects.order_by("pk").values()) for table in tables]


def test_a_file_becomes_rules_with_split_thresholds(app: App) -> None:
    assert bring(app).summary == "5 new, 0 changed, 0 gone"
    rules = [(rule.name, rule.expr, rule.comparator, rule.threshold) for rule in rules_of(app).order_by("place")]
    assert rules == [
        ("Busy", 'cpu{mode!="idle"}', ">", 90.0),
        ("Busy", "sum(rate(x[5m]))", ">", 3.0),
        ("Absent", "absent(up)", "", 0.0),
    ]
    busy = rules_of(app).select_related("group").order_by("place")[0]
    assert (busy.for_ms, busy.keep_firing_for_ms, busy.severity, busy.missing) == (
        300_000,
        60_000,
        "critical",
        "resolve",
    )
    assert busy.alert_labels == {"team": "infra", "severity": "page"}
    assert RecordingRule.objects.get().name == "job:cpu:avg"


def test_a_file_applied_twice_changes_no_row_and_no_version(app: App) -> None:
    bring(app)
    before = rows(app)
    assert bring(app).summary == "no change"
    assert rows(app) == before


def test_an_exported_file_imports_as_no_change(app: App) -> None:
    bring(app)
    text = export_file(app, "node.yml")
    assert text is not None
    before = rows(app)
    assert bring(app, text).changes == ()
    assert rows(app) == before


def test_a_dry_run_says_the_difference_and_changes_nothing(app: App) -> None:
    bring(app)
    before = rows(app)
    changes = bring(app, TEXT.replace("> 90", "> 95").replace("absent(up)", "absent(upp)"), dry_run=True)
    assert changes.lines() == [
        "node.yml: 0 new, 2 changed, 0 gone",
        '~ alert "Busy" of group "node"',
        "    threshold: 90.0 → 95.0",
        '~ alert "Absent" of group "node"',
        "    expr: absent(up) → absent(upp)",
    ]
    assert rows(app) == before


def test_a_change_keeps_the_rule_and_what_people_set_besides(app: App) -> None:
    bring(app)
    rule = rules_of(app).get(threshold=90.0)
    Rule.objects.filter(pk=rule.pk).update(receivers=["ops@example.org"], enabled=False, hold_ms=60_000)
    bring(app, TEXT.replace("> 90", "> 95"))
    changed = Rule.objects.get(pk=rule.pk)
    assert (changed.threshold, changed.receivers, changed.enabled, changed.hold_ms) == (
        95.0,
        ["ops@example.org"],
        False,
        60_000,
    )
    assert rule.versions.count() == 1  # the first one was never in force


def test_what_only_moves_gets_no_version(app: App) -> None:
    bring(app)
    before = list(RuleVersionRow.objects.values())
    assert bring(app, TEXT.replace("rules:", "rules:\n      - {record: a, expr: b}")).summary.startswith("1 new")
    assert list(RuleVersionRow.objects.values()) == before


def test_rules_that_left_the_file_end_and_prune_ends_those_of_other_files(app: App) -> None:
    bring(app)
    other = "groups: [{name: g, rules: [{alert: A, expr: up == 0}]}]"
    import_files(app, {"other.yml": other}, by=Author(), now_ms=NOW_MS)
    assert rules_of(app).count() == 4
    results = import_files(app, {"node.yml": "groups: []"}, by=Author(), now_ms=NOW_MS, prune=True)
    assert [each.summary for each in results] == ["0 new, 0 changed, 5 gone", "0 new, 0 changed, 2 gone"]
    assert not rules_of(app).exists()
    assert not RuleGroup.objects.exists()
    assert Rule.objects.count() == 4  # their history stays
    ended = RuleVersionRow.objects.filter(until_ms=None).values_list("content__ended", flat=True)
    assert set(ended) == {"deleted"}


def test_rules_of_pages_are_never_touched_by_files(app: App, make_rule: Any) -> None:
    own = make_rule(name="Busy")
    bring(app)
    remove_file(app, "node.yml", by=Author(), now_ms=NOW_MS)
    assert [rule.pk for rule in rules_of(app)] == [own.pk]


def test_a_file_that_is_wrong_changes_nothing_of_the_others(app: App) -> None:
    before = rows(app)
    texts = {"node.yml": TEXT, "bad.yml": "groups: [{name: g, rules: [{alert: A, expr: sum(}]}]"}
    with pytest.raises(BadRuleFile, match=r'bad.yml, line 1, group "g", rule "A": expr'):
        import_files(app, texts, by=Author(), now_ms=NOW_MS)
    assert rows(app) == before


def test_more_rules_than_an_app_may_have_are_refused_as_a_whole(app: App) -> None:
    rules = "".join(f"\n      - {{alert: A{n}, expr: up == {n}}}" for n in range(501))
    before = rows(app)
    with pytest.raises(LimitExceeded, match="too many rules"):
        bring(app, f"groups:\n  - name: g\n    rules:{rules}")
    assert rows(app) == before


def test_the_command_imports_shows_and_exports(
    app: App, tmp_path: Path, capsys: pytest.CaptureFixture[str], people: dict[str, User]
) -> None:
    path = tmp_path / "node.yml"
    path.write_text(TEXT)
    call_command("rules", "import", str(path), "--dry-run")
    assert "nothing was changed" in capsys.readouterr().out
    assert not Rule.objects.exists()
    call_command("rules", "import", str(path), "--app", str(app.pk))
    assert "5 new" in capsys.readouterr().out
    call_command("rules", "export", "node.yml")
    assert "keep_firing_for: 1m" in capsys.readouterr().out
    with pytest.raises(CommandError, match="no rule file"):
        call_command("rules", "export", "nope.yml")


INTERVALS = [("", 15, 20), ("interval: 30s", 15, 30), ("interval: 30s", 30, 30), ("interval: 1m", 61, 120)]


@pytest.mark.parametrize(("interval", "for_s", "judged_s"), INTERVALS)
def test_a_duration_ends_at_an_evaluation_of_the_group(app: App, interval: str, for_s: int, judged_s: int) -> None:
    text = "groups: [{name: g, %srules: [{alert: A, expr: up > 1, for: %ds}]}]"
    bring(app, text % (interval and f"{interval}, ", for_s))
    rule = Rule.objects.get(app=app)
    assert (rule.for_ms, rule.timing.for_ms) == (for_s * 1_000, judged_s * 1_000)
    bring(app, text % ("interval: 2m, ", for_s))
    assert RuleVersionRow.objects.get(rule=rule, until_ms=None).content["timing"]["for_ms"] == 120_000
    assert "for: 120s" not in str(export_file(app, "node.yml"))
