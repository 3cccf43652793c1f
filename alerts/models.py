"""The tables of alerting: rules, the states of their series, the history of events, and the outbox of messages.

Times are milliseconds since the epoch. Rows change only through ``rulebook`` (people), ``evaluate`` (evaluations) and
``outbox`` (deliveries). A deleted rule keeps its row, so that history and messages still have their rule.
"""

from django.conf import settings
from django.db import models

from alerts.rules import COMPARATORS, NO_COMPARATOR, Condition, SeriesState, State
from spm import limits


class Severity(models.TextChoices):
    """How bad an alert is. The message shows it; it does not change how the message is delivered."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Rule(models.Model):
    """A condition on a PromQL expression, and the receivers of its messages."""

    COMPARATORS = [(NO_COMPARATOR, "the expression decides"), *((sign, sign) for sign in COMPARATORS)]

    app = models.ForeignKey("accounts.App", models.CASCADE, related_name="rules")
    name = models.CharField(max_length=limits.RULE_NAME_CHARS_MAX)
    expr = models.TextField(max_length=limits.RULE_EXPR_CHARS_MAX)
    comparator = models.CharField(max_length=2, choices=COMPARATORS, blank=True, default=">")
    threshold = models.FloatField(default=0.0)
    recovery = models.FloatField(null=True, blank=True)
    for_ms = models.BigIntegerField(default=0)
    keep_firing_for_ms = models.BigIntegerField(default=0)
    severity = models.CharField(max_length=8, choices=Severity.choices, default=Severity.WARNING)
    receivers = models.JSONField(default=list, help_text="who gets the messages")
    enabled = models.BooleanField(default=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+")
    created_ms = models.BigIntegerField()
    changed_ms = models.BigIntegerField()
    deleted_ms = models.BigIntegerField(null=True, blank=True)
    evaluated_ms = models.BigIntegerField(default=0, help_text="evaluated up to")
    error = models.TextField(blank=True, help_text="why the last evaluation failed")
    claim = models.BigIntegerField(default=0)
    claim_until_ms = models.BigIntegerField(default=0)

    class Meta:
        ordering = ["name", "id"]
        indexes = [models.Index(fields=["enabled", "evaluated_ms"])]

    def __str__(self) -> str:
        return self.name

    @property
    def condition(self) -> Condition:
        """The rule's condition, for the state machine."""
        return Condition(
            comparator=self.comparator,
            threshold=self.threshold,
            recovery=self.recovery,
            for_ms=self.for_ms,
            keep_firing_for_ms=self.keep_firing_for_ms,
        )


class Alert(models.Model):
    """The state of one series of a rule. A series that was never violated has no row."""

    STATES = [(state.value, state.value) for state in State]

    rule = models.ForeignKey(Rule, models.CASCADE, related_name="alerts")
    fingerprint = models.CharField(max_length=32)
    labels = models.JSONField()
    state = models.CharField(max_length=8, choices=STATES)
    since_ms = models.BigIntegerField()
    episode_ms = models.BigIntegerField()
    value = models.FloatField(null=True)
    well_since_ms = models.BigIntegerField(null=True, blank=True)

    class Meta:
        ordering = ["state", "-since_ms"]
        constraints = [models.UniqueConstraint(fields=["rule", "fingerprint"], name="one_alert_per_series")]
        indexes = [models.Index(fields=["state", "since_ms"])]

    def __str__(self) -> str:
        return f"{self.rule} {self.fingerprint} {self.state}"

    @property
    def series_state(self) -> SeriesState:
        """The series state, for the state machine."""
        return SeriesState(
            state=State(self.state),
            since_ms=self.since_ms,
            episode_ms=self.episode_ms,
            value=float("nan") if self.value is None else self.value,
            well_since_ms=self.well_since_ms,
        )


class AlertEvent(models.Model):
    """One change of state, written once in the transaction of the change."""

    rule = models.ForeignKey(Rule, models.CASCADE, related_name="events")
    fingerprint = models.CharField(max_length=32)
    labels = models.JSONField()
    before = models.CharField(max_length=8, choices=Alert.STATES)
    state = models.CharField(max_length=8, choices=Alert.STATES)
    episode_ms = models.BigIntegerField()
    at_ms = models.BigIntegerField()
    value = models.FloatField(null=True)
    reason = models.CharField(max_length=200, blank=True)

    class Meta:
        ordering = ["-at_ms", "-id"]
        constraints = [
            models.UniqueConstraint(fields=["rule", "fingerprint", "episode_ms", "state"], name="one_event_per_change")
        ]
        indexes = [models.Index(fields=["rule", "-at_ms"])]

    def __str__(self) -> str:
        return f"{self.rule} {self.before} → {self.state}"


class Delivery(models.TextChoices):
    """The delivery state of a message."""

    WAITING = "waiting"
    SENT = "sent"
    DEAD = "dead"


DEFAULT_KIND = "mail"  # of messages to receivers that no notifier accepts: the delivery fails and says why


class Outbox(models.Model):
    """A message to deliver, written in the transaction of its cause. Its unique key allows it only once.

    A message without an app is for one person, about their own account: no page of an app shows it.
    """

    app = models.ForeignKey("accounts.App", models.CASCADE, null=True, blank=True, related_name="+")
    kind = models.CharField(max_length=16, default=DEFAULT_KIND)
    key = models.CharField(max_length=200, unique=True)
    payload = models.JSONField()
    state = models.CharField(max_length=8, choices=Delivery.choices, default=Delivery.WAITING)
    attempts = models.IntegerField(default=0)
    created_ms = models.BigIntegerField()
    next_attempt_ms = models.BigIntegerField()
    sent_ms = models.BigIntegerField(null=True, blank=True)
    error = models.TextField(blank=True)
    claim = models.BigIntegerField(default=0)
    claim_until_ms = models.BigIntegerField(default=0)

    class Meta:
        ordering = ["-created_ms", "-id"]
        verbose_name_plural = "outbox"
        indexes = [models.Index(fields=["state", "next_attempt_ms"]), models.Index(fields=["app", "-created_ms"])]

    def __str__(self) -> str:
        return self.key
