"""The tables of judging: the states of series, the history of events, and episodes."""

from django.db import models

from alerts.models.rule import Rule, Severity
from alerts.rules import SeriesState, State


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


class Aspect(models.TextChoices):
    """What an episode is about: the value of a series, its absence, or a rule that cannot be judged."""

    VALUE = "value"
    MISSING = "missing"
    ERROR = "error"


class EpisodeStatus(models.TextChoices):
    """Whether an episode goes on, is over, never was by what is known now, or became a part of another one."""

    OPEN = "open"
    ENDED = "ended"
    VOID = "void"
    MERGED = "merged"


class EndReason(models.TextChoices):
    """Why an episode ended."""

    RECOVERED = "recovered"
    NO_DATA = "no data"
    GONE = "gone"
    EDITED = "edited"
    SWITCHED_OFF = "switched off"
    DELETED = "deleted"
    PERSON = "person"


class Episode(models.Model):
    """One stretch of time in which one aspect of a series of a rule is firing.

    Its identity stays when late data moves its start or end. ``revision`` grows by one with each change, so that a
    reader sees which of two copies is newer. Times are steps of the rule's grid, except ``created_ms`` and
    ``changed_ms``, which are times of the clock that recorded the change.
    """

    rule = models.ForeignKey(Rule, models.CASCADE, related_name="episodes")
    fingerprint = models.CharField(max_length=32)
    aspect = models.CharField(max_length=8, choices=Aspect.choices, default=Aspect.VALUE)
    labels = models.JSONField()
    severity = models.CharField(max_length=8, choices=Severity.choices, help_text="of the rule when it began")
    start_ms = models.BigIntegerField(help_text="the first step at which it fired")
    end_ms = models.BigIntegerField(null=True, blank=True, help_text="the first step at which it no longer fired")
    status = models.CharField(max_length=8, choices=EpisodeStatus.choices, default=EpisodeStatus.OPEN)
    end_reason = models.CharField(max_length=16, choices=EndReason.choices, blank=True)
    found_late = models.BooleanField(default=False, help_text="it was over when it was first judged")
    revision = models.IntegerField(default=1)
    start_value = models.FloatField(null=True)
    last_value = models.FloatField(null=True)
    merged_into = models.ForeignKey("self", models.SET_NULL, null=True, blank=True, related_name="merged_episodes")
    created_ms = models.BigIntegerField()
    changed_ms = models.BigIntegerField()

    class Meta:
        ordering = ["-start_ms", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["rule", "fingerprint", "aspect"],
                condition=models.Q(status=EpisodeStatus.OPEN),
                name="one_open_episode",
            ),
            models.CheckConstraint(
                condition=models.Q(status=EpisodeStatus.OPEN, end_ms=None)
                | ~models.Q(status=EpisodeStatus.OPEN) & models.Q(end_ms__isnull=False),
                name="only_open_episodes_lack_an_end",
            ),
        ]
        indexes = [models.Index(fields=["rule", "-start_ms"]), models.Index(fields=["status", "end_ms"])]

    def __str__(self) -> str:
        return f"{self.rule} {self.fingerprint} {self.status}"
