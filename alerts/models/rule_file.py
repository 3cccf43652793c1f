"""The tables of rule files: their groups, and recording rules. Alerting rules of files are rows of ``Rule``.

``SeriesLane`` says how far the series that alerting writes reach.
"""

from django.db import models

from spm import limits


class RuleGroup(models.Model):
    """A group of a rule file: its rules have an interval, a limit and labels in common."""

    app = models.ForeignKey("accounts.App", models.CASCADE, related_name="rule_groups")
    file = models.CharField(max_length=limits.RULE_FILE_NAME_CHARS_MAX)
    name = models.CharField(max_length=limits.RULE_FILE_NAME_CHARS_MAX)
    place = models.IntegerField(default=0, help_text="in its file")
    interval_ms = models.BigIntegerField(null=True, blank=True, help_text="null: the default")
    limit = models.IntegerField(default=0, help_text="of the series of a recording rule; 0: none")
    labels = models.JSONField(default=dict, help_text="for all rules of the group")

    class Meta:
        ordering = ["file", "place"]
        constraints = [models.UniqueConstraint(fields=["app", "file", "name"], name="one_rule_group")]

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"

    @property
    def period_ms(self) -> int:
        """The interval of its recording rules: whole periods of the grid."""
        interval_ms = self.interval_ms or limits.RULE_PERIOD_MS
        return -(-interval_ms // limits.RULE_PERIOD_MS) * limits.RULE_PERIOD_MS


class RecordingRule(models.Model):
    """An expression whose answer is recorded as a metric of the app. ``error``: why its last step failed."""

    app = models.ForeignKey("accounts.App", models.CASCADE, related_name="recording_rules")
    group = models.ForeignKey(RuleGroup, models.CASCADE, related_name="recording_rules")
    place = models.IntegerField(default=0, help_text="in its group")
    name = models.CharField(max_length=limits.RULE_NAME_CHARS_MAX, help_text="of the metric")
    expr = models.TextField(max_length=limits.RULE_EXPR_CHARS_MAX)
    labels = models.JSONField(default=dict)
    error = models.TextField(blank=True)
    created_ms = models.BigIntegerField()
    changed_ms = models.BigIntegerField()

    class Meta:
        ordering = ["group__file", "group__place", "place"]

    def __str__(self) -> str:
        return self.name


class SeriesLane(models.Model):
    """Up to which step an app's recording rules are recorded, and ``ALERTS`` is written.

    ``alerts_seq`` is the number of the app's lane then: what judging takes back later ends.
    """

    app = models.OneToOneField("accounts.App", models.CASCADE, related_name="series_lane")
    recorded_ms = models.BigIntegerField()
    alerts_ms = models.BigIntegerField()
    alerts_seq = models.BigIntegerField(default=0)
    took_us = models.BigIntegerField(default=0, help_text="the last recording, in microseconds")
    lease_until_ms = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"series of {self.app}"
