"""Organisations, the people in them, their apps, and the tokens and sources of an app.

An app is the unit of isolation; its id is the tenant key of the store: 32 bits, given once, never used again. Models
hold fields, constraints and properties over their own fields; the acts on them are in ``services``, ``tokens``,
``sources``, ``access``, ``audit``, ``bootstrap``, ``logins`` and ``organisations``. Enter by ``App``.
"""

from typing import ClassVar

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q

from spm import limits

APP_ID_MAX = 0xFFFF_FFFF  # four bytes of every key


class Role(models.TextChoices):
    """A person's role in an organisation; each role includes those below it."""

    OWNER = "owner", "Owner"
    ADMIN = "admin", "Admin"
    EDITOR = "editor", "Editor"
    VIEWER = "viewer", "Viewer"


class Organisation(models.Model):
    """Owns apps; people belong to it. One that is ``internal`` holds the product's own metrics, for its staff."""

    name = models.CharField(max_length=120)
    internal = models.BooleanField(default=False, editable=False)
    created = models.DateTimeField(auto_now_add=True)
    going = models.DateTimeField(null=True, blank=True, editable=False, help_text="when somebody deleted it")

    class Meta:
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    """One person's role in one organisation."""

    organisation = models.ForeignKey(Organisation, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=10, choices=Role.choices, default=Role.VIEWER)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["organisation", "user"], name="membership_once"),
            models.CheckConstraint(condition=Q(role__in=Role.values), name="membership_role_known"),
        ]

    def __str__(self) -> str:
        return f"{self.user} · {self.role} of {self.organisation}"


class Invitation(models.Model):
    """Lets the person who gets a mail join an organisation, once. The database stores a keyed hash of its secret."""

    organisation = models.ForeignKey(Organisation, on_delete=models.CASCADE, related_name="invitations")
    email = models.EmailField()
    role = models.CharField(max_length=10, choices=Role.choices, default=Role.VIEWER)
    digest = models.BinaryField(max_length=32, unique=True, editable=False)
    invited_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created = models.DateTimeField()
    expires = models.DateTimeField()
    accepted = models.DateTimeField(null=True, blank=True, editable=False)
    revoked = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering: ClassVar = ["-id"]
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(role__in=Role.values), name="invitation_role_known"),
            models.UniqueConstraint(
                fields=["organisation", "email"], condition=Q(accepted=None, revoked=None), name="invitation_open_once"
            ),
        ]

    def __str__(self) -> str:
        return self.email


class App(models.Model):
    """One monitored system. Its id is part of the keys of all its rows.

    ``*_days``: how long samples, hourly and daily aggregates are kept; null is for ever. An app with ``going`` is
    deleted for everybody; its row stays until its data is deleted.
    """

    id = models.BigAutoField(primary_key=True)
    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT, related_name="apps")
    name = models.CharField(max_length=120)
    created = models.DateTimeField(auto_now_add=True)
    raw_days = models.PositiveIntegerField(null=True, blank=True, default=limits.RETENTION_RAW_DAYS)
    hour_days = models.PositiveIntegerField(null=True, blank=True, default=limits.RETENTION_HOUR_DAYS)
    day_days = models.PositiveIntegerField(null=True, blank=True)
    series_max = models.PositiveBigIntegerField(
        "series at most",
        null=True,
        blank=True,
        validators=[MaxValueValidator(limits.QUOTA_SERIES_MAX)],
        help_text=f"new ones beyond are refused; empty: the site's {limits.QUOTA_SERIES:,}",
    )
    rate_max = models.PositiveBigIntegerField(
        "samples a second at most",
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="on average; empty: the site's (SPM_APP_RATE_MAX)",
    )
    going = models.DateTimeField(null=True, blank=True, editable=False, help_text="when somebody deleted it")

    class Meta:
        ordering: ClassVar = ["name", "id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["organisation", "name"], condition=Q(going=None), name="app_name_once"),
            models.CheckConstraint(condition=Q(id__gte=1, id__lte=APP_ID_MAX), name="app_id_fits_the_key"),
            # Aggregates are kept at least as long as their samples; comparing with null (for ever) never fails in SQL.
            models.CheckConstraint(
                condition=Q(raw_days__gte=limits.RETENTION_DAYS_MIN), name="app_raw_days_one_or_more"
            ),
            models.CheckConstraint(condition=Q(raw_days__lte=F("hour_days")), name="app_hours_outlive_raw"),
            models.CheckConstraint(condition=Q(hour_days__lte=F("day_days")), name="app_days_outlive_hours"),
            models.CheckConstraint(
                condition=(Q(raw_days__isnull=False) | Q(hour_days=None))
                & (Q(hour_days__isnull=False) | Q(day_days=None)),
                name="app_for_ever_holds_upwards",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class StoreBinding(models.Model):
    """The identity of the store that belongs to this database; one row. ``is_confirmed``: the store carries it."""

    identity = models.BinaryField(max_length=16, editable=False)
    is_confirmed = models.BooleanField(default=False, editable=False)

    def __str__(self) -> str:
        return bytes(self.identity).hex()


class Token(models.Model):
    """Lets a program send to an app or read from it. The database stores only a keyed hash of its secret."""

    app = models.ForeignKey(App, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=120)
    scopes = models.CharField(max_length=40, help_text="ingest, read, events, write, admin; separated by spaces")
    prefix = models.CharField(max_length=24, unique=True, editable=False)
    digest = models.BinaryField(max_length=32, editable=False)
    created = models.DateTimeField(auto_now_add=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, editable=False, on_delete=models.SET_NULL, related_name="+"
    )
    expires = models.DateTimeField(null=True, blank=True, editable=False, help_text="from when on it is refused")
    last_used = models.DateTimeField(null=True, blank=True, editable=False)
    revoked = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering: ClassVar = ["-created", "-id"]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    @property
    def scope_set(self) -> frozenset[str]:
        return frozenset(self.scopes.split())


class Source(models.Model):
    """One sending agent of an app, usually a host. ``period_ms``: the period that it announces, if any.

    ``period_since``: when it first announced this period; ``period_before_ms``: the period before.
    """

    app = models.ForeignKey(App, on_delete=models.CASCADE, related_name="sources")
    name = models.CharField(max_length=255)
    first_seen = models.DateTimeField()
    last_seen = models.DateTimeField()
    period_ms = models.PositiveIntegerField(null=True, blank=True)
    period_since = models.DateTimeField(null=True, blank=True)
    period_before_ms = models.PositiveIntegerField(null=True, blank=True)

    class Meta:
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["app", "name"], name="source_once")]

    def __str__(self) -> str:
        return self.name


class AuditEntry(models.Model):
    """Who did what, and when. Written in the transaction of the act; never changed."""

    organisation = models.ForeignKey(Organisation, null=True, on_delete=models.SET_NULL, related_name="audit_entries")
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="audit_entries"
    )
    actor_name = models.CharField(max_length=150, blank=True)
    action = models.CharField(max_length=60)
    subject = models.CharField(max_length=200, blank=True)
    detail = models.JSONField(default=dict)
    # The database's default serves processes of the version before, which do not know the column.
    address = models.CharField(
        max_length=45, blank=True, default="", db_default="", help_text="from where a person did it"
    )
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar = ["-id"]
        verbose_name_plural = "audit entries"
        indexes: ClassVar = [models.Index(fields=["organisation", "-id"], name="audit_of_organisation")]

    def __str__(self) -> str:
        return f"{self.actor_name or 'system'}: {self.action} {self.subject}".rstrip()


class LoginBudget(models.Model):
    """The tries to log in that were counted for a device, a network, an account, or two of them.

    Keys are keyed hashes: the table says neither who tried nor from where. ``account`` is empty for a network's row.
    """

    key = models.CharField(max_length=32, primary_key=True)
    account = models.CharField(max_length=32, blank=True, db_index=True)
    failures = models.PositiveIntegerField(default=0)
    last_ms = models.BigIntegerField(default=0)
    known_until_ms = models.BigIntegerField(default=0)
    noticed_ms = models.BigIntegerField(default=0, help_text="of an account: when its owner was last written to")
    expires_ms = models.BigIntegerField(default=0, db_index=True)

    def __str__(self) -> str:
        return self.key


class LoginNotice(models.Model):
    """A mail to a person whose account gets wrong logins; it waits here until alerts put it into their outbox.

    ``device``: a device that the account knows already, whose id the mail contains as a link.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    address = models.CharField(max_length=64)
    device = models.CharField(max_length=32)
    at_ms = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.user} · {self.address}"
