"""The table of messages to people, with the delivery state of each."""

from django.db import models


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
