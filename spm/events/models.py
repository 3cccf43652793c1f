"""The tables of the stream: events, the head of each organisation's stream, and consumer groups.

An event without a position waits in the outbox for the relay. Rows change only in that one way: by getting a position.
"""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from spm.events import limits


class Event(models.Model):
    """Something that happened in an app. ``event_id`` is its writer's: the same id again is the same event."""

    organisation = models.ForeignKey("accounts.Organisation", models.CASCADE, related_name="+")
    app = models.ForeignKey("accounts.App", models.CASCADE, related_name="+")
    position = models.BigIntegerField(
        null=True, blank=True, help_text="in the organisation's stream; none: not relayed"
    )
    event_id = models.CharField(max_length=limits.EVENT_ID_CHARS_MAX)
    kind = models.CharField(max_length=limits.KIND_CHARS_MAX)
    key = models.CharField(max_length=limits.KEY_CHARS_MAX, help_text="events of one key are read in order")
    text = models.CharField(max_length=limits.TEXT_CHARS_MAX)
    link = models.CharField(max_length=limits.LINK_CHARS_MAX, blank=True)
    at_ms = models.BigIntegerField()
    end_ms = models.BigIntegerField(null=True, blank=True)
    body = models.JSONField(default=dict)
    author = models.CharField(max_length=limits.AUTHOR_CHARS_MAX, blank=True)
    is_posted = models.BooleanField(default=False, help_text="written by a person or a program, not by the product")
    made_ms = models.BigIntegerField()

    class Meta:
        ordering: ClassVar = ["-at_ms", "-id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["app", "event_id"], name="event_id_once"),
            models.UniqueConstraint(fields=["organisation", "position"], name="event_position_once"),
        ]
        indexes: ClassVar = [
            models.Index(fields=["organisation", "id"], name="event_not_relayed", condition=Q(position=None)),
            models.Index(fields=["app", "position"], name="event_of_app"),
            models.Index(fields=["app", "at_ms"], name="event_at"),
        ]

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


class StreamHead(models.Model):
    """The newest position of an organisation's stream, and the position after which all events are still kept."""

    organisation = models.OneToOneField(
        "accounts.Organisation", models.CASCADE, primary_key=True, related_name="stream_head"
    )
    position = models.BigIntegerField(default=0)
    oldest = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.organisation_id}: {self.oldest} to {self.position}"


class ConsumerGroup(models.Model):
    """Readers of an app's events who share them by key. ``fence`` grows each time a partition changes hands."""

    app = models.ForeignKey("accounts.App", models.CASCADE, related_name="+")
    name = models.CharField(max_length=64)
    partition_by = models.CharField(max_length=64, default="key")
    kinds = models.JSONField(default=list, help_text="of events that the group reads; empty: of all")
    fence = models.BigIntegerField(default=0)
    made_ms = models.BigIntegerField()

    class Meta:
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["app", "name"], name="consumer_group_once")]

    def __str__(self) -> str:
        return self.name


class Consumer(models.Model):
    """A member of a group until its lease runs out. Its random name is never given again."""

    group = models.ForeignKey(ConsumerGroup, models.CASCADE, related_name="consumers")
    name = models.CharField(max_length=32, unique=True)
    fence = models.BigIntegerField(default=0)
    lease_s = models.PositiveIntegerField(default=limits.LEASE_S)
    lease_until_ms = models.BigIntegerField()

    class Meta:
        ordering: ClassVar = ["id"]

    def __str__(self) -> str:
        return self.name


class Partition(models.Model):
    """A part of a group's keys: how far it is done, whose it is, and up to where its events were handed out."""

    group = models.ForeignKey(ConsumerGroup, models.CASCADE, related_name="partitions")
    number = models.PositiveIntegerField()
    position = models.BigIntegerField()
    consumer = models.ForeignKey(Consumer, models.SET_NULL, null=True, blank=True, related_name="partitions")
    fetched = models.BigIntegerField(null=True, blank=True)

    class Meta:
        ordering: ClassVar = ["number"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["group", "number"], name="partition_once")]

    def __str__(self) -> str:
        return f"{self.group} {self.number}"
