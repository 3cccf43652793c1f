"""The form of a rule, of every kind: checks what people type and turns it into a draft.

A field that was not sent keeps its value, and so does one that rules of the chosen kind do not use: what stands in it
is not looked at. Enter by ``RuleForm``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from django import forms

from alerts import durations
from alerts.backtesting.backtests import version_of
from alerts.expressions import Querier
from alerts.judging import limits as judging_limits
from alerts.judging.conditions import NO_COMPARATOR, MissingPolicy, recovery_is_sound
from alerts.judging.kinds import Kind
from alerts.models import Rule, Severity
from alerts.notify.registry import receiver_hints
from alerts.pages.editor.check import check
from alerts.pages.editor.kinds import CHOICES, PROMQL, is_used
from alerts.pages.fields import DurationField, LabelNamesField, ReceiversField, TemplateField, TextsField
from alerts.rulebook import Draft
from alerts.rulefiles.limits import ANNOTATIONS_MAX, LABELS_MAX
from alerts.telling import limits as telling_limits
from alerts.telling.decide.windows import check_timing
from spm import limits
from spm.errors import BadQuery, SpmError

_NUMBER = {"step": "any"}
_TEXTS = ("summary", "description", "runbook_url")  # annotations with a field of their own
_MANY_LINES = ("description",)
_HORIZON_MAX_MS = 366 * 24 * limits.HOUR_MS


class RuleForm(forms.Form):
    """All fields of a rule. ``app`` and ``querier`` let the form try the expression before it is saved."""

    kind = forms.ChoiceField(
        choices=list(CHOICES.items()), required=False, initial=Kind.THRESHOLD.value, widget=forms.RadioSelect
    )
    name = forms.CharField(max_length=limits.RULE_NAME_CHARS_MAX)
    expr = forms.CharField(
        label="Expression",
        max_length=limits.RULE_EXPR_CHARS_MAX,
        widget=forms.Textarea(attrs={"rows": 2, "spellcheck": "false", "autocomplete": "off"}),
    )
    by = LabelNamesField(
        label="One alert for each", most=LABELS_MAX, help_text="Labels, such as host. Empty: every series by itself"
    )
    window_ms = DurationField(label="Window", empty_ms=judging_limits.WINDOW_MS, least_ms=1_000)
    horizon_ms = DurationField(label="Time ahead", empty_ms=judging_limits.HORIZON_MS, most_ms=_HORIZON_MAX_MS)
    forget_ms = DurationField(
        label="Forget after",
        empty_ms=judging_limits.FORGET_MS,
        least_ms=1_000,
        help_text="What is silent for so long is gone for good",
    )
    weeks = forms.IntegerField(
        required=False,
        min_value=judging_limits.ANOMALY_WEEKS_MIN,
        max_value=judging_limits.ANOMALY_WEEKS_MAX,
        initial=judging_limits.ANOMALY_WEEKS,
        label="Weeks compared",
    )
    spread_min = forms.FloatField(
        required=False,
        min_value=0,
        widget=forms.NumberInput(attrs=_NUMBER),
        label="Least spread",
        help_text="In the value's unit. Keeps a series that hardly varies from firing",
    )
    comparator = forms.ChoiceField(choices=Rule.COMPARATORS, required=False, initial=">", label="Alert when it is")
    threshold = forms.FloatField(required=False, widget=forms.NumberInput(attrs=_NUMBER))
    recovery = forms.FloatField(
        required=False,
        widget=forms.NumberInput(attrs=_NUMBER),
        label="Recovery threshold",
        help_text="While the rule fires, this replaces the threshold. Empty: the threshold itself",
    )
    for_ms = DurationField(label="For", help_text="How long the condition must last: 90s, 5m, 1h30m")
    keep_firing_for_ms = DurationField(label="Keep firing for", help_text="How long it must be good before it resolves")
    missing = forms.ChoiceField(
        choices=Rule.MISSING,
        initial=MissingPolicy.HOLD,
        required=False,
        label="When a series has no data",
        help_text="Ended for lack of data is never reported as recovered",
    )
    hold_ms = DurationField(
        label="Hold",
        empty_ms=judging_limits.HOLD_MS,
        most_ms=judging_limits.HOLD_MAX_MS,
        help_text="How long an alert keeps its state without data",
    )
    missing_for_ms = DurationField(
        label="Missing for",
        empty_ms=judging_limits.MISSING_FOR_MS,
        help_text="If missing data is an alert: how long it must be missing",
    )
    severity = forms.ChoiceField(choices=Severity.choices, initial=Severity.WARNING)
    receivers = ReceiversField(label="Receivers", help_text=f"One or more, each a {receiver_hints()}")
    labels = TextsField(
        most=LABELS_MAX, may_query=False, help_text="One a line, like team=web. Policies and silences match them"
    )
    summary = TemplateField(help_text="One line. {{ $labels.host }} and {{ $value }} are replaced")
    description = TemplateField(widget=forms.Textarea(attrs={"rows": 2}))
    runbook_url = TemplateField(label="Runbook", help_text="The address of what to do")
    annotations = TextsField(
        label="Further texts", most=ANNOTATIONS_MAX, help_text="One a line, like dashboard=https://…"
    )
    schedule_cron = forms.CharField(
        required=False,
        max_length=120,
        label="Notify only from",
        widget=forms.TextInput(attrs={"spellcheck": "false", "autocomplete": "off", "placeholder": "always"}),
        help_text="Minute, hour, day, month, weekday: 0 8 * * 1-5 is 08:00 on weekdays. Empty: always",
    )
    schedule_ms = DurationField(
        label="For so long", empty_ms=limits.RULE_SCHEDULE_MS, least_ms=1, most_ms=telling_limits.WINDOW_MS_MAX
    )
    schedule_zone = forms.CharField(
        required=False, max_length=64, initial="UTC", label="Time zone", help_text="Such as Europe/Berlin"
    )
    enabled = forms.BooleanField(required=False, initial=True)

    def __init__(
        self,
        *args: Any,
        rule: Rule | None,
        app: int,
        querier: Querier | None,
        at_ms: int,
        is_tried: bool = False,
        **kwargs: Any,
    ) -> None:
        """``is_tried``: the rule is to be tried and not saved, so it needs no name and no receiver yet.

        Without a querier the expression is not looked at.
        """
        super().__init__(*args, **kwargs)
        self._rule, self._app, self._querier, self._at_ms = rule, app, querier, at_ms
        spared = {"name", "receivers", "severity"} if is_tried else set[str]()
        if rule is not None and not rule.receivers:  # policies alone say who hears of it
            spared.add("receivers")
        if rule is not None and self.is_bound:  # what was not sent keeps its value
            spared |= set(self.fields) - set(self.data) - {"name", "enabled"}
        for name in spared:
            self.fields[name].required = False

    @property
    def chosen_kind(self) -> str:
        """The kind in the editor's words: the one that is chosen, else the rule's."""
        return str(self.cleaned_data.get("kind") or (_kind_of(self._rule) if self._rule else Kind.THRESHOLD))

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        kind = self.chosen_kind
        for name in [name for name in self.errors if not is_used(name, kind)]:
            del self.errors[name]
        if "expr" not in self.errors and "kind" not in self.errors:
            cleaned["expr"] = cleaned["expr"].replace("\r\n", "\n")  # as browsers send line ends
            self._check_condition(kind)
            self._check_expression()
        self._check_schedule()
        return cleaned

    def _check_condition(self, kind: str) -> None:
        if not is_used("comparator", kind) or {"comparator", "threshold", "recovery"} & set(self.errors):
            return
        values = self.values()
        comparator, threshold, recovery = values["comparator"], self.cleaned_data.get("threshold"), values["recovery"]
        if comparator and threshold is None and "threshold" in self.data:
            self.add_error("threshold", "A comparison needs a threshold: write a number.")
        elif recovery is not None and not recovery_is_sound(comparator, values["threshold"], recovery):
            text = f"This must be on the good side of the threshold of a < or > comparison; got {recovery:g}."
            self.add_error("recovery", text)

    def _check_schedule(self) -> None:
        cron, zone = self.cleaned_data.get("schedule_cron"), self.cleaned_data.get("schedule_zone") or "UTC"
        duration_ms = self.cleaned_data.get("schedule_ms")
        if cron and duration_ms is not None:
            try:
                check_timing(cron, zone, duration_ms)
            except BadQuery as error:
                self.add_error("schedule_cron", str(error))

    def _check_expression(self) -> None:
        if set(self.errors) or self._querier is None:
            return
        version = version_of(Rule(app_id=self._app, **self.values()))
        if error := check(self._app, version, at_ms=self._at_ms, querier=self._querier).error:
            self.add_error("expr", error)

    def draft(self) -> Draft:
        """Return the draft of a valid form."""
        return Draft(**self.values())

    def refuse(self, error: SpmError) -> None:
        """Show why a valid form could not be saved: beside the expression, or on top."""
        self.add_error("expr" if isinstance(error, BadQuery) else None, str(error))

    def values(self) -> dict[str, Any]:
        """Return the values of a draft: what was sent and is used by the kind, else the rule's, else the defaults."""
        kind, cleaned = self.chosen_kind, self.cleaned_data
        defaults = {**_DEFAULTS, **({name: getattr(self._rule, name) for name in _DRAFT_NAMES} if self._rule else {})}
        sent = {
            name: _DEFAULTS[name] if _is_empty(name, cleaned[name]) else cleaned[name]
            for name in _DRAFT_NAMES
            if name in cleaned and name in self.data and is_used(name, kind)
        }
        values = {**defaults, **sent, "enabled": bool(cleaned.get("enabled"))}
        values |= {"kind": Kind.THRESHOLD.value if kind == PROMQL else kind}
        values |= {"comparator": NO_COMPARATOR, "recovery": None} if kind == PROMQL else {}
        values |= {"missing": values["missing"] or MissingPolicy.HOLD.value}
        values |= {name: tuple(values[name]) for name in ("receivers", "by")}
        annotations = dict(self._annotations(defaults["annotations"]))
        return {
            **values,
            "labels": _untouched(values["labels"], defaults["labels"]),
            "annotations": _untouched(annotations, defaults["annotations"]),
        }

    def _annotations(self, before: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        others = self.cleaned_data.get("annotations") or {}
        for name in _TEXTS:
            text = self.cleaned_data.get(name, "") if name in self.data else before.get(name, "")
            if text and text == _on_one_line(before.get(name, "")) and name not in _MANY_LINES:
                text = before[name]  # a field of one line shows no line ends
            if text:
                yield name, text
        rest = before if "annotations" not in self.data else others
        yield from ((name, text) for name, text in rest.items() if name not in _TEXTS)


_DRAFT_NAMES = tuple(field.name for field in fields(Draft))
_DEFAULTS: Mapping[str, Any] = {
    "name": "",
    "expr": "",
    "comparator": ">",
    "threshold": 0.0,
    "recovery": None,
    "for_ms": 0,
    "keep_firing_for_ms": 0,
    "severity": Severity.WARNING.value,
    "receivers": (),
    "missing": MissingPolicy.HOLD.value,
    "hold_ms": judging_limits.HOLD_MS,
    "missing_for_ms": judging_limits.MISSING_FOR_MS,
    "window_ms": judging_limits.WINDOW_MS,
    "horizon_ms": judging_limits.HORIZON_MS,
    "forget_ms": judging_limits.FORGET_MS,
    "weeks": judging_limits.ANOMALY_WEEKS,
    "spread_min": 0.0,
    "by": (),
    "labels": {},
    "annotations": {},
    "schedule_cron": "",
    "schedule_zone": "UTC",
    "schedule_ms": limits.RULE_SCHEDULE_MS,
}


def _untouched(texts: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """Return the texts; those that differ from before in the space at the ends of lines only stay as they were."""
    return {
        name: before[name] if name in before and _trimmed(before[name]) == _trimmed(text) else text
        for name, text in texts.items()
    }


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().split("\n"))


def _on_one_line(text: str) -> str:
    return text.replace("\n", "").strip()


def _is_empty(name: str, value: Any) -> bool:
    """Whether something was left empty that a rule cannot do without."""
    return (value is None and name != "recovery") or (not value and name in ("severity", "schedule_zone"))


def _kind_of(rule: Rule) -> str:
    return PROMQL if rule.kind == Kind.THRESHOLD and not rule.comparator else rule.kind


def initial_of(rule: Rule) -> dict[str, Any]:
    """Return the initial values of the form of an existing rule."""
    plain = {
        name: getattr(rule, name)
        for name in (
            *("name", "expr", "comparator", "severity", "missing", "enabled", "weeks"),
            *("schedule_cron", "schedule_zone"),
        )
    }
    plain |= {name: _number(getattr(rule, name)) for name in ("threshold", "recovery", "spread_min")}
    duration_names = [name for name, field in RuleForm.base_fields.items() if isinstance(field, DurationField)]
    texts = {name: rule.annotations.get(name, "") for name in _TEXTS}
    return {
        **plain,
        **texts,
        **{name: durations.spell(getattr(rule, name)) for name in duration_names},
        "kind": _kind_of(rule),
        "receivers": ", ".join(rule.receivers),
        "by": ", ".join(rule.by),
        "labels": rule.labels,
        "annotations": {name: text for name, text in rule.annotations.items() if name not in _TEXTS},
    }


def _number(value: float | None) -> str:
    """Write all digits, without a final ``.0``."""
    return "" if value is None else repr(value).removesuffix(".0")
