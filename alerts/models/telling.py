"""The tables of telling: who is notified, of what, and what became of it.

``Receiver``, ``ContactPoint`` and ``Policy`` say who; ``Silence``, ``MuteTiming``, ``Inhibition`` and
``Acknowledgement`` say when not; ``NotificationGroup``, ``LastWord`` and ``Notification`` are the state of telling.
``Outbox`` holds mail to people about their own accounts, and what is left of an older version's messages. Receivers of
rules are made from the texts of the rule.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from django.conf import settings
from django.db import models


class Delivery(models.TextChoices):
    """The delivery state of a message."""

    WAITING = "waiting"
    SENT = "sent"
    DEAD = "dead"


FIRING, RESOLVED = "firing", "resolved"  # what a message says of an episode
DEFAULT_KIND = "mail"  # of messages to receivers that no notifier accepts: the delivery fails and says why


class Outbox(models.Model):
    """A message to deliver, written in the transaction of its cause. Its unique key allows it only once.

    It is for one person, about their own account: no page of an app shows it. Rows with an app are alerts that an
    older version wrote; they go with their app.
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


class Receiver(models.Model):
    """One address, URL or channel of an organisation, with its budget and whether it works."""

    organisation = models.ForeignKey("accounts.Organisation", models.CASCADE, related_name="+")
    kind = models.CharField(max_length=16)
    target = models.CharField(max_length=500)
    created_ms = models.BigIntegerField()
    tokens = models.FloatField()
    tokens_ms = models.BigIntegerField(default=0, help_text="when it had so many tokens")
    digests = models.BigIntegerField(default=0, help_text="number of its last digest")
    dead_in_a_row = models.IntegerField(default=0, help_text="notifications since one was delivered")
    confirmed_ms = models.BigIntegerField(null=True, help_text="since when it gets notifications; null: it does not")
    is_member = models.BooleanField(default=True, help_text="it was the address of a member when it was written")
    refresh_from_ms = models.BigIntegerField(
        default=0, help_text="from then on an Alertmanager is sent again what goes on"
    )

    class Meta:
        ordering = ["kind", "target"]
        constraints = [models.UniqueConstraint(fields=["organisation", "kind", "target"], name="one_receiver")]

    def __str__(self) -> str:
        return self.target


class NotificationBudget(models.Model):
    """How many notifications an organisation may still be sent: it had ``tokens`` at ``tokens_ms``."""

    organisation = models.OneToOneField("accounts.Organisation", models.CASCADE, related_name="+")
    tokens = models.FloatField()
    tokens_ms = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.organisation}: {self.tokens}"


class ContactPoint(models.Model):
    """A named list of receivers, for policies."""

    organisation = models.ForeignKey("accounts.Organisation", models.CASCADE, related_name="+")
    name = models.CharField(max_length=120)
    receivers = models.ManyToManyField(Receiver, related_name="contact_points")
    wants_report = models.BooleanField(default=False, help_text="its mail addresses get the weekly noise report")

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["organisation", "name"], name="one_contact_point")]

    def __str__(self) -> str:
        return self.name


class Policy(models.Model):
    """A node of the tree of policies: which alerts it takes, for whom, and how they are grouped."""

    organisation = models.ForeignKey("accounts.Organisation", models.CASCADE, related_name="+")
    parent = models.ForeignKey("self", models.CASCADE, null=True, blank=True, related_name="children")
    position = models.IntegerField(default=0)
    matchers = models.TextField()
    contact_point = models.ForeignKey(ContactPoint, models.CASCADE, related_name="policies")
    group_by = models.JSONField(default=list)
    wait_ms = models.BigIntegerField()
    interval_ms = models.BigIntegerField()
    repeat_ms = models.BigIntegerField()
    goes_on = models.BooleanField(default=False, help_text="policies after this one may take the alert too")

    class Meta:
        ordering = ["position", "id"]
        verbose_name_plural = "policies"

    def __str__(self) -> str:
        return f"{self.matchers} → {self.contact_point}"


class EscalationStep(models.Model):
    """Who hears, besides, of an alert of a policy that is still open after a time and that nobody has acknowledged."""

    policy = models.ForeignKey(Policy, models.CASCADE, related_name="escalation")
    after_ms = models.BigIntegerField(help_text="since the alert became known")
    contact_point = models.ForeignKey(ContactPoint, models.CASCADE, related_name="+")

    class Meta:
        ordering = ["after_ms"]
        constraints = [models.UniqueConstraint(fields=["policy", "after_ms"], name="one_escalation_step")]

    def __str__(self) -> str:
        return f"{self.policy}, then {self.contact_point}"


class Silence(models.Model):
    """Alerts that match are not told during [from_ms, to_ms); they are judged all the same."""

    organisation = models.ForeignKey("accounts.Organisation", models.CASCADE, related_name="+")
    matchers = models.TextField()
    from_ms = models.BigIntegerField()
    to_ms = models.BigIntegerField()
    comment = models.CharField(max_length=200, blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+")
    created_ms = models.BigIntegerField()

    class Meta:
        ordering = ["-to_ms", "-id"]
        indexes = [models.Index(fields=["organisation", "to_ms"])]

    def __str__(self) -> str:
        return f"#{self.pk} {self.matchers}"


class MuteTiming(models.Model):
    """A maintenance window that recurs: alerts that match are not told in it."""

    organisation = models.ForeignKey("accounts.Organisation", models.CASCADE, related_name="+")
    name = models.CharField(max_length=120)
    matchers = models.TextField()
    cron = models.CharField(max_length=120)
    zone = models.CharField(max_length=64, default="UTC")
    duration_ms = models.BigIntegerField()

    class Meta:
        ordering = ["name", "id"]

    def __str__(self) -> str:
        return self.name


class Inhibition(models.Model):
    """Alerts that match ``source`` keep those that match ``target`` from being told, where ``equal`` labels agree."""

    organisation = models.ForeignKey("accounts.Organisation", models.CASCADE, related_name="+")
    source = models.TextField()
    target = models.TextField()
    equal = models.JSONField(default=list)

    def __str__(self) -> str:
        return f"{self.source} ⊣ {self.target}"


class Acknowledgement(models.Model):
    """A person has taken an episode: it is not repeated until a time, or until it begins anew."""

    episode = models.OneToOneField("alerts.Episode", models.CASCADE, related_name="acknowledgement")
    by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")
    receiver = models.ForeignKey(Receiver, models.SET_NULL, null=True, related_name="+", help_text="by its link")
    at_ms = models.BigIntegerField()
    first_ms = models.BigIntegerField(default=0, help_text="when it was taken for the first time")
    until_ms = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.episode} by {self.who}"

    @property
    def who(self) -> str:
        """The person, or the receiver whose link was used."""
        return str(self.by or self.receiver or "a former member")


class Notification(models.Model):
    """What one receiver is sent once, frozen when it was written. ``levels``: what it will believe, by episode.

    The key is ``receiver.group.n``; a retry sends the same body under the same key. ``is_doubtful``: an attempt may
    have arrived without an answer.
    """

    organisation = models.ForeignKey("accounts.Organisation", models.CASCADE, related_name="+")
    receiver = models.ForeignKey(Receiver, models.CASCADE, related_name="notifications")
    key = models.CharField(max_length=80, unique=True)
    body = models.JSONField()
    chart = models.JSONField(null=True, help_text="the points of its chart, read once")
    texts = models.JSONField(null=True, help_text="annotations that rest on data, by episode, read once")
    levels = models.JSONField()
    state = models.CharField(max_length=8, choices=Delivery.choices, default=Delivery.WAITING)
    attempts = models.IntegerField(default=0)
    created_ms = models.BigIntegerField()
    next_attempt_ms = models.BigIntegerField()
    sent_ms = models.BigIntegerField(null=True, blank=True)
    is_doubtful = models.BooleanField(default=False)
    answer = models.TextField(blank=True)
    took_ms = models.IntegerField(default=0, help_text="the last attempt")
    claim = models.BigIntegerField(default=0)
    claim_until_ms = models.BigIntegerField(default=0)

    class Meta:
        ordering = ["-created_ms", "-id"]
        indexes = [
            models.Index(fields=["state", "next_attempt_ms"]),
            models.Index(fields=["organisation", "-created_ms"]),
        ]

    def __str__(self) -> str:
        return self.key

    @property
    def full_body(self) -> dict[str, Any]:
        """The body with what was read for it: its chart, and annotations that rest on data."""
        return {**self.body, "lines": with_texts(self.body["lines"], self.texts or {}), "chart": self.chart or {}}


def with_texts(lines: Sequence[Mapping[str, Any]], texts: Mapping[str, Mapping[str, str]]) -> list[Mapping[str, Any]]:
    """Return lines of a body with the annotations that were read for them; ``texts`` has those of episodes."""
    return [{**line, "annotations": texts.get(str(line["episode"]), line.get("annotations", {}))} for line in lines]


class NotificationGroup(models.Model):
    """The alerts that one receiver hears of together. At most one notification of it is open at a time.

    ``next_look_ms``: when what is due may have changed; null while nothing but an event can change it.
    """

    receiver = models.ForeignKey(Receiver, models.CASCADE, related_name="groups")
    policy = models.ForeignKey(Policy, models.SET_NULL, null=True, related_name="+")
    key = models.CharField(max_length=32)
    labels = models.JSONField()
    n = models.BigIntegerField(default=0)
    first_key = models.CharField(max_length=80, blank=True, help_text="of its first notification: the thread")
    open = models.ForeignKey(Notification, models.SET_NULL, null=True, related_name="groups")
    last_flush_ms = models.BigIntegerField(null=True)
    blocked_until_ms = models.BigIntegerField(default=0)
    next_look_ms = models.BigIntegerField(null=True, db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["receiver", "key"], name="one_notification_group")]

    def __str__(self) -> str:
        return f"{self.receiver} {self.labels}"


class TellingClock(models.Model):
    """How far the clock of telling has come, in one row: a clock that stands before that was set back."""

    seen_ms = models.BigIntegerField()

    def __str__(self) -> str:
        return str(self.seen_ms)


class LastWord(models.Model):
    """What a receiver was last told of an episode, by which group, and why it hears nothing now.

    A row with the level ``nothing`` is an episode that the receiver may have to hear of.
    """

    receiver = models.ForeignKey(Receiver, models.CASCADE, related_name="last_words")
    episode = models.ForeignKey("alerts.Episode", models.CASCADE, related_name="last_words")
    group = models.ForeignKey(NotificationGroup, models.CASCADE, related_name="last_words")
    level = models.CharField(max_length=8, default="nothing")
    is_doubtful = models.BooleanField(default=False)
    reason = models.CharField(max_length=200, blank=True)
    not_before_ms = models.BigIntegerField(default=0, help_text="by escalation; 0: at once")
    sent_ms = models.BigIntegerField(default=0, help_text="when an Alertmanager was last sent it")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["receiver", "episode"], name="one_last_word")]

    def __str__(self) -> str:
        return f"{self.receiver}: {self.episode} is {self.level}"
