"""What the front door remembers in the database: the last rejections of each app, for people to read."""

from typing import ClassVar

from django.db import models

from spm.accounts.models import App
from spm.limits import REJECTION_EXAMPLE_CHARS_MAX, SOURCE_BYTES_MAX


class RejectedLine(models.Model):
    """One line or item that was not taken. A ring: ``ingest.rejections`` keeps the last ones of each app only."""

    app = models.ForeignKey(App, on_delete=models.CASCADE, related_name="rejected_lines")
    time_ms = models.BigIntegerField(help_text="when it was refused")
    source = models.CharField(max_length=SOURCE_BYTES_MAX)
    line = models.PositiveIntegerField(help_text="its number in its body, from 1")
    reason = models.CharField(max_length=300)
    example = models.CharField(max_length=REJECTION_EXAMPLE_CHARS_MAX, blank=True, help_text="how it began")

    class Meta:
        ordering: ClassVar = ["-id"]
        indexes: ClassVar = [models.Index(fields=["app", "-id"], name="rejected_line_of_app")]

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


class LetterBox(App):
    """An app, seen by its dead letters; they lie in the store, not in the database."""

    class Meta:
        proxy = True
        verbose_name = "dead letters of an app"
        verbose_name_plural = "dead letters"


class AccountBook(App):
    """An app, seen by where its samples are; that lies in the store, too."""

    class Meta:
        proxy = True
        verbose_name = "account of an app"
        verbose_name_plural = "accounts"
