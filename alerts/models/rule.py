"""The table of rules. A deleted rule keeps its row, so that history and messages still have their rule."""

from django.conf import settings
from django.db import models

from alerts.judging import limits as judging_limits
from alerts.judging.automaton import Timing
from alerts.judging.conditions import COMPARATORS, NO_COMPARATOR, Condition, MissingPolicy
from spm import limits


class Severity(models.TextChoices):
    """How bad an alert is. The message shows it; it does not change how the message is delivered."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Rule(models.Model):
    """A condition on a PromQL expression, and the receivers of its messages. Judging writes no row of this table."""

    COMPARATORS = [(NO_COMPARATOR, "the expression decides"), *((sign, sign) for sign in COMPARATORS)]
    MISSING = [
        (MissingPolicy.HOLD.value, "keep the state for a while"),
        (MissingPolicy.RESOLVE.value, "it is well"),
        (MissingPolicy.ALERT.value, "it is an alert of its own"),
    ]

    app = models.ForeignKey("accounts.App", models.CASCADE, related_name="rules")
    name = models.CharField(max_length=limits.RULE_NAME_CHARS_MAX)
    expr = models.TextField(max_length=limits.RULE_EXPR_CHARS_MAX)
    comparator = models.CharField(max_length=2, choices=COMPARATORS, blank=True, default=">")
    threshold = models.FloatField(default=0.0)
    recovery = models.FloatField(null=True, blank=True)
    for_ms = models.BigIntegerField(default=0)
    keep_firing_for_ms = models.BigIntegerField(default=0)
    missing = models.CharField(max_length=8, choices=MISSING, default=MissingPolicy.HOLD)
    hold_ms = models.BigIntegerField(default=judging_limits.HOLD_MS)
    missing_for_ms = models.BigIntegerField(default=judging_limits.MISSING_FOR_MS)
    severity = models.CharField(max_length=8, choices=Severity.choices, default=Severity.WARNING)
    receivers = models.JSONField(default=list, help_text="who gets the messages")
    enabled = models.BooleanField(default=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+")
    created_ms = models.BigIntegerField()
    changed_ms = models.BigIntegerField()
    deleted_ms = models.BigIntegerField(null=True, blank=True)

    class Meta:
        ordering = ["name", "id"]

    def __str__(self) -> str:
        return self.name

    @property
    def condition(self) -> Condition:
        """The rule's condition, for judging."""
        return Condition(self.comparator, self.threshold, self.recovery, MissingPolicy(self.missing))

    @property
    def timing(self) -> Timing:
        """The rule's durations, for judging."""
        return Timing(self.for_ms, self.keep_firing_for_ms, self.hold_ms)
