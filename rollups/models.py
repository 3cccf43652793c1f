"""Database records of runs: one row per run, per (app, day) it changed, and per hour it corrected.

The store alone says what is in force; these rows describe it for people, and may be pruned. ``number`` is the run's
number in the store, which a roll back names.
"""

from datetime import date, datetime, timedelta
from typing import ClassVar

from django.db import models

from spm.accounts.models import App


def date_of(day: int) -> date:
    """The date of a day counted from 1970-01-01."""
    return date(1970, 1, 1) + timedelta(days=day)


class RunState(models.TextChoices):
    """How a run ended."""

    RUNNING = "running", "Running"
    DONE = "done", "Done"
    FAILED = "failed", "Failed"
    LOST = "lost", "Lost"  # its process died; what it had published stays, the next run does the rest
    ROLLED_BACK = "rolled back", "Rolled back"


class RunKind(models.TextChoices):
    """What a run does."""

    MINOR = "minor", "Minor"
    FULL = "full", "Full"
    UPGRADE = "upgrade", "Upgrade"  # rewrites what an older version wrote
    REDISTRIBUTE = "redistribute", "Redistribute"  # moves metrics between shards
    SEAL = "seal", "Seal"  # deletes raw samples after their retention, and keeps their hours
    PURGE = "purge", "Purge"  # deletes retracted samples for good


class CorrectionCause(models.TextChoices):
    """Why an hour was aggregated again."""

    LATE = "late", "Late data"
    RETRACTION = "retraction", "Retraction"
    UNDO = "undo", "Undone retraction"
    ROLLBACK = "rollback", "Rolled back run"


class Run(models.Model):
    """One execution of the rollup job."""

    number = models.PositiveBigIntegerField(unique=True)
    kind = models.CharField(max_length=12, choices=RunKind.choices)
    executor = models.CharField(max_length=10)
    state = models.CharField(max_length=12, choices=RunState.choices, default=RunState.RUNNING)
    units = models.PositiveIntegerField(default=0)
    units_total = models.PositiveIntegerField(default=0)
    samples = models.PositiveBigIntegerField(default=0)
    size_bytes = models.PositiveBigIntegerField(default=0)
    started = models.DateTimeField()
    finished = models.DateTimeField(null=True, blank=True)
    message = models.TextField(blank=True)
    apps = models.JSONField(default=list, help_text="the numbers of the apps it looks at, while it works")

    class Meta:
        ordering: ClassVar = ["-number"]
        indexes: ClassVar = [models.Index(fields=["kind", "-started"], name="run_by_kind")]

    def __str__(self) -> str:
        return f"run {self.number}"

    @property
    def seconds(self) -> float | None:
        """How long the run took; ``None`` while it lasts."""
        return (self.finished - self.started).total_seconds() if self.finished else None

    @property
    def samples_per_s(self) -> float | None:
        """Samples compacted per second, over the entire run."""
        return self.samples / self.seconds if self.seconds else None

    def eta_s(self, now: datetime) -> float | None:
        """The remaining seconds at the present speed; ``None`` if the run is over, or has done nothing yet."""
        if self.state != RunState.RUNNING or not self.units:
            return None
        return (now - self.started).total_seconds() * (self.units_total - self.units) / self.units


class RunDay(models.Model):
    """What a run did to one day of one app."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="days")
    app = models.ForeignKey(App, on_delete=models.CASCADE, related_name="run_days")
    day = models.DateField()
    published = models.BooleanField(db_column="flipped")
    units = models.PositiveIntegerField()
    samples = models.PositiveBigIntegerField()
    size_bytes = models.PositiveBigIntegerField()
    rolled_back = models.BooleanField(default=False)

    class Meta:
        ordering: ClassVar = ["app", "day"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["run", "app", "day"], name="run_day_once")]

    def __str__(self) -> str:
        return f"{self.app}, {self.day}"


class Trouble(models.Model):
    """What could not be done for an app, or for one of its days, when it was last tried. It goes when that works."""

    app = models.ForeignKey(App, on_delete=models.CASCADE, related_name="troubles")
    act = models.CharField(max_length=20, help_text="what was tried: run, consider, widen, expire, purge or delete")
    day = models.DateField(null=True, blank=True, help_text="none: the whole app")
    reason = models.TextField()
    since = models.DateTimeField(help_text="when it was tried in vain for the first time")
    at = models.DateTimeField(help_text="when it was tried in vain for the last time")

    class Meta:
        ordering: ClassVar = ["app", "day"]

    def __str__(self) -> str:
        return f"{self.act} of {self.app}" + (f", {self.day}" if self.day else "")


class Correction(models.Model):
    """An hour whose aggregates were replaced because of late data, a retraction, an undo, or a roll back."""

    app = models.ForeignKey(App, on_delete=models.CASCADE, related_name="corrections")
    hour = models.DateTimeField()
    run = models.PositiveBigIntegerField(help_text="the number of the run that rebuilt it")
    cause = models.CharField(max_length=10, choices=CorrectionCause.choices)
    samples = models.PositiveBigIntegerField(default=0, help_text="samples that came in late")
    sources = models.JSONField(default=list)
    at = models.DateTimeField()

    class Meta:
        ordering: ClassVar = ["-at", "-hour", "-id"]
        indexes: ClassVar = [models.Index(fields=["app", "-at"], name="correction_by_app")]

    def __str__(self) -> str:
        return f"{self.app}, {self.hour:%Y-%m-%d %H}:00"


class RetractionRecord(models.Model):
    """What a retraction hid when it was added, counted just before. The store holds the retraction itself."""

    app = models.ForeignKey(App, on_delete=models.CASCADE, related_name="retraction_records")
    number = models.PositiveBigIntegerField()
    samples = models.PositiveBigIntegerField()
    restored = models.PositiveBigIntegerField()
    series = models.PositiveBigIntegerField()
    hours = models.PositiveIntegerField()
    alerts = models.PositiveIntegerField(default=0)
    sealed = models.PositiveIntegerField(default=0)
    at_least = models.BooleanField(default=False)
    undone_by = models.CharField(max_length=150, blank=True)
    purged_by = models.CharField(max_length=150, blank=True)

    class Meta:
        ordering: ClassVar = ["-number"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["app", "number"], name="retraction_record_once")]

    def __str__(self) -> str:
        return f"retraction {self.number}"


class Spreading(App):
    """An app with its placement in shards, which is in the store and not in the database."""

    class Meta:
        proxy = True
        verbose_name = "placement of an app"
        verbose_name_plural = "placements"
