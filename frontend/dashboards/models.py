"""Dashboards of an app, and their versions. A dashboard's document is that of its newest version."""

from typing import ClassVar

from django.contrib.auth.models import User
from django.db import models

from frontend.dashboards.limits import NOTE_CHARS_MAX, TITLE_CHARS_MAX
from spm.accounts.models import App


class Dashboard(models.Model):
    """A dashboard: its address, and the number of its newest version."""

    app = models.ForeignKey(App, on_delete=models.CASCADE, related_name="dashboards")
    uid = models.CharField(max_length=16, unique=True, editable=False)
    title = models.CharField(max_length=TITLE_CHARS_MAX)
    version = models.PositiveIntegerField(default=1)
    changed_ms = models.BigIntegerField()
    tags = models.JSONField(default=list)  # as the newest document has them

    class Meta:
        ordering: ClassVar = ["title", "pk"]

    def __str__(self) -> str:
        return self.title


class DashboardVersion(models.Model):
    """What was saved at once: the whole document, by whom, and why."""

    dashboard = models.ForeignKey(Dashboard, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    document = models.JSONField()
    size_bytes = models.PositiveIntegerField()
    author = models.CharField(max_length=150)
    note = models.CharField(max_length=NOTE_CHARS_MAX, blank=True)
    saved_ms = models.BigIntegerField()

    class Meta:
        ordering: ClassVar = ["-number"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["dashboard", "number"], name="dashboard_version_once"),
        ]

    def __str__(self) -> str:
        return f"{self.dashboard} · {self.number}"


class Star(models.Model):
    """A person's mark: the dashboard stands first in that person's list."""

    person = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    dashboard = models.ForeignKey(Dashboard, on_delete=models.CASCADE, related_name="stars")

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["person", "dashboard"], name="star_once")]

    def __str__(self) -> str:
        return f"{self.dashboard} ★ {self.person}"
