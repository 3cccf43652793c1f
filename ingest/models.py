"""What ingest keeps in the database: rejections, descriptions, ways of arrival, agents, heartbeats."""

from typing import ClassVar

from django.db import models

from spm.accounts.models import App
from spm.limits import METRIC_BYTES_MAX, REJECTION_EXAMPLE_CHARS_MAX, SOURCE_BYTES_MAX


class RejectedLine(models.Model):
    """One line or item that was rejected. ``ingest.accept.rejections`` keeps the newest ones of each app."""

    app = models.ForeignKey(App, on_delete=models.CASCADE, related_name="rejected_lines")
    time_ms = models.BigIntegerField(help_text="when it was rejected")
    source = models.CharField(max_length=SOURCE_BYTES_MAX)
    way = models.CharField(max_length=40, blank=True, help_text="the protocol, or the program that speaks it")
    line = models.PositiveIntegerField(help_text="its number in its body, from 1; 0: the body, or a series")
    reason = models.CharField(max_length=300)
    example = models.CharField(max_length=REJECTION_EXAMPLE_CHARS_MAX, blank=True, help_text="its first characters")

    class Meta:
        ordering: ClassVar = ["-id"]
        indexes: ClassVar = [models.Index(fields=["app", "-id"], name="rejected_line_of_app")]

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


class MetricDescription(models.Model):
    """The newest description of a metric by its senders, kept by ``ingest.accept.descriptions``."""

    app = models.ForeignKey(App, on_delete=models.CASCADE, related_name="metric_descriptions")
    metric = models.CharField(max_length=METRIC_BYTES_MAX)
    type = models.CharField(max_length=20, help_text="Prometheus' type: counter, gauge, histogram, summary …")
    help = models.TextField(blank=True)
    unit = models.CharField(max_length=100, blank=True)

    class Meta:
        ordering: ClassVar = ["metric"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["app", "metric"], name="metric_described_once")]

    def __str__(self) -> str:
        return self.metric


class StoredExemplar(models.Model):
    """One of the newest exemplars of an app, kept by ``ingest.exemplars.storage``."""

    app = models.ForeignKey(App, on_delete=models.CASCADE, related_name="exemplars")
    digest = models.BigIntegerField(help_text="of series, time, value and labels: one that comes again is the same")
    metric = models.CharField(max_length=METRIC_BYTES_MAX)
    series = models.BinaryField(help_text="its canonical form")
    at_ms = models.BigIntegerField(help_text="its time")
    bits = models.BigIntegerField(help_text="of its value")
    labels = models.TextField(help_text="its own: JSON, a list of names and values")
    source = models.CharField(max_length=SOURCE_BYTES_MAX)
    stamp_ms = models.BigIntegerField(help_text="when its message was accepted")

    class Meta:
        ordering: ClassVar = ["-at_ms", "-id"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["app", "digest"], name="exemplar_once")]
        indexes: ClassVar = [
            models.Index(fields=["app", "at_ms", "id"], name="exemplar_of_app"),
            models.Index(fields=["app", "metric", "at_ms", "id"], name="exemplar_of_metric"),
        ]

    def __str__(self) -> str:
        return f"exemplar of {self.metric} at {self.at_ms}"


class Arrival(models.Model):
    """The first and last arrival of data by one way (protocol or program) in an app."""

    app = models.ForeignKey(App, on_delete=models.CASCADE, related_name="arrivals")
    way = models.CharField(max_length=40)
    source = models.CharField(max_length=SOURCE_BYTES_MAX, help_text="the source that came last")
    first_seen = models.DateTimeField()
    last_seen = models.DateTimeField()

    class Meta:
        ordering: ClassVar = ["way"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["app", "way"], name="arrival_once")]

    def __str__(self) -> str:
        return f"{self.way} to {self.app_id}"


class Agent(models.Model):
    """One of our agents, as its last heartbeat described it. Its name is that of the source its data comes from."""

    app = models.ForeignKey(App, on_delete=models.CASCADE, related_name="agents")
    name = models.CharField(max_length=SOURCE_BYTES_MAX)
    version = models.CharField(max_length=40, blank=True)
    platform = models.CharField(max_length=200, blank=True)
    period_ms = models.PositiveIntegerField(help_text="between two rounds of its collectors")
    started = models.DateTimeField(help_text="when its process started")
    process_ms = models.BigIntegerField(null=True, help_text="its start by its own clock: tells processes apart")
    twin = models.DateTimeField(null=True, help_text="when two of this name were last heard")
    first_seen = models.DateTimeField()
    last_seen = models.DateTimeField(help_text="its last heartbeat")
    spool = models.CharField(max_length=12, blank=True, help_text="the spool that numbers its messages")
    sequence = models.BigIntegerField(default=0, help_text="the number of its newest message")
    spooled = models.BigIntegerField(default=0, help_text="messages that wait on its disk")
    oldest_ms = models.BigIntegerField(default=0, help_text="how long the oldest of them has waited")
    dropped_messages = models.BigIntegerField(default=0)
    dropped_samples = models.BigIntegerField(default=0)
    offset_ms = models.BigIntegerField(null=True, help_text="how far its clock is ahead of ours")
    tags = models.JSONField(default=dict)
    collectors = models.JSONField(default=dict, help_text="the state of each: ok, or its error")
    etag = models.CharField(max_length=32, blank=True, help_text="of the settings it applied")
    refused = models.JSONField(default=dict, help_text="pushed settings it did not apply, and why")

    class Meta:
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["app", "name"], name="agent_once")]

    def __str__(self) -> str:
        return self.name


class AgentSettings(models.Model):
    """Settings pushed to those agents of an app that ``match`` names: all, those with a tag, or one."""

    app = models.ForeignKey(App, on_delete=models.CASCADE, related_name="agent_settings")
    match = models.CharField(max_length=300, help_text="*, tag=value, or an agent's name")
    settings = models.JSONField(default=dict)
    changed = models.DateTimeField()
    changed_by = models.CharField(max_length=150)

    class Meta:
        ordering: ClassVar = ["match"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["app", "match"], name="agent_settings_once")]

    def __str__(self) -> str:
        return self.match


class Heartbeat(models.Model):
    """A job that reports its runs under a secret key: a request with the key is the job's."""

    app = models.ForeignKey(App, on_delete=models.CASCADE, related_name="heartbeats")
    name = models.CharField(max_length=120)
    key = models.UUIDField(unique=True, editable=False)
    created = models.DateTimeField()
    last_ms = models.BigIntegerField(null=True, editable=False, help_text="when it last reported")
    last_act = models.CharField(max_length=10, blank=True, editable=False, help_text="what it reported then")
    started_ms = models.BigIntegerField(null=True, editable=False, help_text="of a run that has not ended")

    class Meta:
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["app", "name"], name="heartbeat_once")]

    @property
    def failed(self) -> bool:
        """Whether the last report was a failure."""
        return self.last_act == "fail" or (self.last_act.isdecimal() and int(self.last_act) != 0)

    @property
    def said(self) -> str:
        """The last report: ``failed``, ``started`` or ``succeeded``; empty before the first."""
        if self.last_ms is None:
            return ""
        return "failed" if self.failed else "started" if self.last_act == "start" else "succeeded"

    def __str__(self) -> str:
        return self.name


class AppDeadLetters(App):
    """An app as the admin lists it with its dead letters; they are in the store, not in the database."""

    class Meta:
        proxy = True
        verbose_name = "dead letters of an app"
        verbose_name_plural = "dead letters"


class AppBalance(App):
    """An app as the admin lists it with its balance of samples, which is in the store."""

    class Meta:
        proxy = True
        verbose_name = "balance of an app"
        verbose_name_plural = "balances"
