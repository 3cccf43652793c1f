"""The table of rules, and what a row means to judging: its condition, timing and parameters.

A deleted rule keeps its row, so that history and messages still have their rule.
"""

from django.conf import settings
from django.db import models

from alerts.judging import limits as judging_limits
from alerts.judging.automaton import Timing
from alerts.judging.conditions import COMPARATORS, NO_COMPARATOR, Condition, MissingPolicy
from alerts.judging.kinds import Kind, Parameters, condition_of
from spm import limits


class Severity(models.TextChoices):
    """How bad an alert is. The message shows it; it does not change how the message is delivered."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Rule(models.Model):
    """A condition on a PromQL expression, and the receivers of its messages. Judging writes no row of this table.

    ``window_ms`` … ``by`` are the parameters of some kinds (``Parameters``). ``labels`` are added to those of its
    alerts; ``annotations`` are texts for people, among them ``summary``, ``description`` and ``runbook_url``. Its
    schedule says when its alerts are told; it is judged all the time.
    """

    KINDS = [(kind.value, kind.value) for kind in Kind]

    COMPARATORS = [(NO_COMPARATOR, "the expression decides"), *((sign, sign) for sign in COMPARATORS)]
    MISSING = [
        (MissingPolicy.HOLD.value, "keep the state for a while"),
        (MissingPolicy.RESOLVE.value, "it is well"),
        (MissingPolicy.ALERT.value, "it is an alert of its own"),
    ]

    app = models.ForeignKey("accounts.App", models.CASCADE, related_name="rules")
    name = models.CharField(max_length=limits.RULE_NAME_CHARS_MAX)
    kind = models.CharField(max_length=16, choices=KINDS, default=Kind.THRESHOLD.value)
    expr = models.TextField(max_length=limits.RULE_EXPR_CHARS_MAX)
    window_ms = models.BigIntegerField(default=judging_limits.WINDOW_MS)
    horizon_ms = models.BigIntegerField(default=judging_limits.HORIZON_MS)
    forget_ms = models.BigIntegerField(default=judging_limits.FORGET_MS)
    weeks = models.IntegerField(default=judging_limits.ANOMALY_WEEKS)
    spread_min = models.FloatField(default=0.0)
    by = models.JSONField(default=list, blank=True)
    comparator = models.CharField(max_length=2, choices=COMPARATORS, blank=True, default=">")
    threshold = models.FloatField(default=0.0)
    recovery = models.FloatField(null=True, blank=True)
    for_ms = models.BigIntegerField(default=0)
    keep_firing_for_ms = models.BigIntegerField(default=0)
    missing = models.CharField(max_length=8, choices=MISSING, default=MissingPolicy.HOLD)
    hold_ms = models.BigIntegerField(default=judging_limits.HOLD_MS)
    missing_for_ms = models.BigIntegerField(default=judging_limits.MISSING_FOR_MS)
    severity = models.CharField(max_length=8, choices=Severity.choices, default=Severity.WARNING)
    labels = models.JSONField(default=dict, blank=True)
    annotations = models.JSONField(default=dict, blank=True)
    receivers = models.JSONField(default=list, help_text="who gets the messages")
    schedule_cron = models.CharField(max_length=120, blank=True, help_text="when its alerts are told; empty: always")
    schedule_zone = models.CharField(max_length=64, default="UTC")
    schedule_ms = models.BigIntegerField(default=limits.RULE_SCHEDULE_MS, help_text="how long alerts are told then")
    enabled = models.BooleanField(default=True)
    group = models.ForeignKey("alerts.RuleGroup", models.SET_NULL, null=True, blank=True, related_name="rules")
    place = models.IntegerField(default=0, help_text="in its group")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+")
    created_ms = models.BigIntegerField()
    changed_ms = models.BigIntegerField()
    deleted_ms = models.BigIntegerField(null=True, blank=True)

    class Meta:
        ordering = ["name", "id"]

    def __str__(self) -> str:
        return self.name

    @property
    def own_labels(self) -> dict[str, str]:
        """The labels that people wrote for it and its group; templates."""
        return {**(self.group.labels if self.group else {}), **self.labels}

    @property
    def alert_labels(self) -> dict[str, str]:
        """The labels that it adds to its alerts; templates. A rule of a file has no severity but its own label."""
        return self.own_labels if self.group else {"severity": self.severity, **self.own_labels}

    @property
    def condition(self) -> Condition:
        """The rule's condition, for judging."""
        written = Condition(self.comparator, self.threshold, self.recovery, MissingPolicy(self.missing))
        return condition_of(Kind(self.kind), self.parameters, written)

    @property
    def timing(self) -> Timing:
        """The rule's durations, for judging: those of a file end at an evaluation of their group, as in Prometheus."""
        period_ms = self.group.period_ms if self.group else 1
        for_ms, keep_ms = (-(-each // period_ms) * period_ms for each in (self.for_ms, self.keep_firing_for_ms))
        return Timing(for_ms, keep_ms, self.hold_ms)

    @property
    def parameters(self) -> Parameters:
        """The parameters of the rule's kind, for judging."""
        return Parameters(self.window_ms, self.horizon_ms, self.forget_ms, self.weeks, self.spread_min, tuple(self.by))
