"""Brings the rules of an app in step with rule files, all of them in one transaction.

A file that says what is there already writes nothing: no row, no version of a rule, no number of the lane. ``dry_run``
gives the same differences and changes nothing. Enter by ``import_files``; ``remove_file`` deletes the rules of one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from alerts import rulebook
from alerts.journal import naming_of
from alerts.judging.conditions import MissingPolicy, recovery_is_sound
from alerts.judging.readers.order import reads_alerts
from alerts.models import RecordingRule, Rule, RuleGroup, RuleVersionRow
from alerts.rulebook import Draft, RuleEdit
from alerts.rulefiles import limits
from alerts.rulefiles.content import Place, RuleFile
from alerts.rulefiles.parse import parse
from alerts.rulefiles.plan import ALERT, GROUP, RECORD, Change, Fields, Identity, compare, number_equals
from spm.accounts import audit
from spm.accounts.models import App
from spm.errors import LimitExceeded
from spm.limits import RULE_FILE_NAME_CHARS_MAX, RULES_PER_APP_MAX

_ALERT_FIELDS = (
    "kind",
    "expr",
    "comparator",
    "threshold",
    "for_ms",
    "keep_firing_for_ms",
    "severity",
    "labels",
    "annotations",
    "place",
)


@dataclass(frozen=True, slots=True)
class Author:
    """Who changes rules: a person, or a program of this name."""

    person: User | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Import:
    """What the import of a file changed, or would change."""

    file: str
    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Write it as lines for people."""
        lines = [line for change in self.changes for line in change.lines()]
        return [f"{self.file}: {self.summary}", *lines, *(f"note: {note}" for note in self.notes)]

    @property
    def summary(self) -> str:
        """The numbers of changes."""
        new = sum(change.before is None for change in self.changes)
        gone = sum(change.after is None for change in self.changes)
        changed = len(self.changes) - new - gone
        return f"{new} new, {changed} changed, {gone} gone" if self.changes else "no change"


@transaction.atomic
def import_files(
    app: App, texts: Mapping[str, str], *, by: Author, now_ms: int, dry_run: bool = False, prune: bool = False
) -> list[Import]:
    """Import files, by name; all are parsed before the first one is applied. ``prune``: other files' rules go."""
    files = [parse(text, _checked_name(name)) for name, text in texts.items()]
    others = sorted(set(file_names(app)) - set(texts)) if prune else []
    imports = [_bring_in_step(app, file.name, file, by=by, now_ms=now_ms, dry_run=dry_run) for file in files]
    return [*imports, *(_bring_in_step(app, name, None, by=by, now_ms=now_ms, dry_run=dry_run) for name in others)]


def remove_file(app: App, name: str, *, by: Author, now_ms: int, dry_run: bool = False) -> Import:
    """Delete the groups and rules of a file."""
    return _bring_in_step(app, _checked_name(name), None, by=by, now_ms=now_ms, dry_run=dry_run)


def file_names(app: App) -> list[str]:
    """Return the names of the app's rule files."""
    return list(RuleGroup.objects.filter(app=app).order_by("file").values_list("file", flat=True).distinct())


def _checked_name(name: str) -> str:
    if not name.strip() or not name.isprintable() or "/" in name or len(name) > RULE_FILE_NAME_CHARS_MAX:
        wanted = f"1 to {RULE_FILE_NAME_CHARS_MAX} characters without a slash"
        raise Place(name[:60], 1).refuse("not the name of a rule file", wanted=wanted)
    return name


@transaction.atomic
def _bring_in_step(app: App, name: str, file: RuleFile | None, *, by: Author, now_ms: int, dry_run: bool) -> Import:
    App.objects.select_for_update().get(pk=app.pk)
    stored = _Stored.of(app, name)
    changes = compare(file, stored.fields)
    if changes and not dry_run:
        _Applier(app, name, stored, by, now_ms).apply(changes)
        _check_bounds(app)
    return Import(name, tuple(changes), file.notes if file else ())


def _check_bounds(app: App) -> None:
    for what, count, most in (
        ("rules", rulebook.rules_of(app).count(), RULES_PER_APP_MAX),
        ("recording rules", RecordingRule.objects.filter(app=app).count(), RULES_PER_APP_MAX),
        ("rule files", len(file_names(app)), limits.FILES_MAX),
    ):
        if count > most:
            raise LimitExceeded(f"too many {what} in this app", got=count, wanted=f"at most {most}")


@dataclass(frozen=True, slots=True)
class _Stored:
    """The groups and rules of one file in the database, by identity."""

    fields: dict[Identity, Fields] = field(default_factory=dict)
    groups: dict[str, RuleGroup] = field(default_factory=dict)
    alerts: dict[Identity, Rule] = field(default_factory=dict)
    records: dict[Identity, RecordingRule] = field(default_factory=dict)

    @classmethod
    def of(cls, app: App, file: str) -> "_Stored":
        stored = cls()
        for group in RuleGroup.objects.filter(app=app, file=file):
            stored.groups[group.name] = group
            stored.fields[Identity(GROUP, group.name)] = _columns(group, ("interval_ms", "limit", "labels", "place"))
        alerts = list(rulebook.rules_of(app).filter(group__file=file).select_related("group").order_by("place", "pk"))
        for identity, rule in zip(_identities(ALERT, alerts), alerts, strict=True):
            stored.alerts[identity], stored.fields[identity] = rule, _columns(rule, _ALERT_FIELDS)
        records = list(RecordingRule.objects.filter(group__in=stored.groups.values()).select_related("group"))
        for identity, record in zip(_identities(RECORD, records), records, strict=True):
            stored.records[identity] = record
            stored.fields[identity] = _columns(record, ("expr", "labels", "place"))
        return stored


def _identities(kind: str, rules: Sequence[Rule] | Sequence[RecordingRule]) -> list[Identity]:
    return number_equals((kind, rule.group.name if rule.group else "", rule.name) for rule in rules)


def _columns(row: object, names: Sequence[str]) -> Fields:
    return {name: getattr(row, name) for name in names}


class _Applier:
    """Carries the changes of one file out."""

    def __init__(self, app: App, file: str, stored: _Stored, by: Author, now_ms: int) -> None:
        self._app, self._file, self._stored, self._by, self._now_ms = app, file, stored, by, now_ms
        self._edit: RuleEdit | None = None

    def apply(self, changes: Sequence[Change]) -> None:
        """Carry all changes out, and note them."""
        act = {GROUP: self._group, ALERT: self._alert, RECORD: self._record}
        for change in changes:
            act[change.identity.kind](change)
        self._judge_moved_anew()
        detail = {"changes": [line for change in changes for line in change.lines()][:100]}
        organisation = self._app.organisation
        audit.record(
            "rules.import",
            self._file,
            actor=self._by.person,
            name=self._by.name,
            organisation=organisation,
            detail=detail,
        )

    def _group(self, change: Change) -> None:
        name = change.identity.group
        if change.after is None:
            self._stored.groups[name].delete()
        elif change.before is None:
            fields: dict[str, Any] = dict(change.after)
            group = RuleGroup.objects.create(app=self._app, file=self._file, name=name, **fields)
            self._stored.groups[name] = group
        else:
            RuleGroup.objects.filter(pk=self._stored.groups[name].pk).update(**change.after)
            if not change.after.keys().isdisjoint(("interval_ms", "labels")):
                self._judge_anew(name)

    def _judge_anew(self, group: str) -> None:
        """Add versions of the rules of a group: durations end at its evaluations, and alerts have its labels."""
        for identity, rule in self._stored.alerts.items():
            if identity.group == group:
                self._begun_edit().change(rule, {})

    def _judge_moved_anew(self) -> None:
        """Add versions of rules that moved, if the file has one that reads alerts: it sees those of rules before it."""
        rules = rulebook.rules_of(self._app).filter(group__file=self._file).select_related("group")
        if not any(reads_alerts(rule.expr) for rule in rules):
            return
        versions = RuleVersionRow.objects.filter(rule__in=rules, until_ms=None).values_list("rule", "content")
        judged = {number: content.get("alert") for number, content in versions}
        for rule in rules:
            if judged.get(rule.pk) != naming_of(rule):
                self._begun_edit().change(rule, {})

    def _begun_edit(self) -> RuleEdit:
        if self._edit is None:
            self._edit = rulebook.begin_edit(self._app, now_ms=self._now_ms)
        return self._edit

    def _record(self, change: Change) -> None:
        identity = change.identity
        if change.after is None:
            self._stored.records[identity].delete()
        elif change.before is None:
            RecordingRule.objects.create(
                app=self._app,
                group=self._stored.groups[identity.group],
                name=identity.name,
                created_ms=self._now_ms,
                changed_ms=self._now_ms,
                **dict[str, Any](change.after),
            )
        else:
            row = RecordingRule.objects.filter(pk=self._stored.records[identity].pk)
            row.update(changed_ms=self._now_ms, **change.after)

    def _alert(self, change: Change) -> None:
        identity = change.identity
        edit = self._begun_edit()
        if change.after is None:
            edit.delete(self._stored.alerts[identity])
        elif change.before is None:
            fields = dict[str, Any](change.after)
            place = fields.pop("place")
            draft = Draft(
                name=identity.name,
                recovery=None,
                receivers=(),
                enabled=True,
                missing=MissingPolicy.RESOLVE.value,
                **fields,
            )
            group = self._stored.groups[identity.group]
            edit.create(draft, created_by=self._by.person, group=group, place=place)
        else:
            self._change_alert(self._stored.alerts[identity], change.after)

    def _change_alert(self, rule: Rule, after: Fields) -> None:
        fields = dict[str, Any](after)
        comparator, threshold = fields.get("comparator", rule.comparator), fields.get("threshold", rule.threshold)
        if rule.recovery is not None and not recovery_is_sound(comparator, threshold, rule.recovery):
            fields["recovery"] = None
        self._begun_edit().change(rule, fields, is_judged_anew=set(fields) != {"place"})
