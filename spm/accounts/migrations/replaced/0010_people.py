"""Accounts by django-allauth: the addresses and sessions there are stay good; invitations; a cache for all processes."""

from datetime import UTC, datetime
from importlib import import_module

import django.db.models.deletion
from django.conf import settings
from django.core.management import call_command
from django.db import migrations, models

ROLES = [("owner", "Owner"), ("admin", "Admin"), ("editor", "Editor"), ("viewer", "Viewer")]


def create_cache(apps, schema_editor):
    call_command("createcachetable", database=schema_editor.connection.alias, verbosity=0)


def confirm_addresses(apps, schema_editor):
    """Staff have given these addresses; the first account with one keeps it."""
    address_model = apps.get_model("account", "EmailAddress")
    taken = set(address_model.objects.filter(verified=True).values_list("email", flat=True))
    for user in apps.get_model("auth", "User").objects.exclude(email="").order_by("pk").iterator():
        email = user.email.lower()
        if email not in taken and not address_model.objects.filter(user_id=user.pk).exists():
            address_model.objects.create(user_id=user.pk, email=email, verified=True, primary=True)
            taken.add(email)


def note_sessions(apps, schema_editor):
    """A person can end sessions that began before."""
    decode = import_module(settings.SESSION_ENGINE).SessionStore().decode
    user_ids = set(apps.get_model("auth", "User").objects.values_list("pk", flat=True))
    session_model = apps.get_model("usersessions", "UserSession")
    rows = apps.get_model("sessions", "Session").objects.filter(expire_date__gt=datetime.now(UTC))
    for row in rows.iterator():
        user_id = decode(row.session_data).get("_auth_user_id", "")
        if user_id.isdecimal() and int(user_id) in user_ids:
            facts = {"user_id": int(user_id), "ip": "0.0.0.0", "user_agent": ""}
            session_model.objects.get_or_create(session_key=row.session_key, defaults=facts)


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0009_store_binding"),
        ("account", "0009_emailaddress_unique_primary_email"),
        ("sessions", "0001_initial"),
        ("usersessions", "0001_initial"),
    ]
    operations = [
        migrations.CreateModel(
            name="Invitation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("email", models.EmailField(max_length=254)),
                ("role", models.CharField(choices=ROLES, default="viewer", max_length=10)),
                ("digest", models.BinaryField(max_length=32, unique=True)),
                ("created", models.DateTimeField()),
                ("expires", models.DateTimeField()),
                ("accepted", models.DateTimeField(blank=True, editable=False, null=True)),
                ("revoked", models.DateTimeField(blank=True, editable=False, null=True)),
                (
                    "invited_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "organisation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="invitations",
                        to="accounts.organisation",
                    ),
                ),
            ],
            options={"ordering": ["-id"]},
        ),
        migrations.AddConstraint(
            model_name="invitation",
            constraint=models.CheckConstraint(
                condition=models.Q(("role__in", [role for role, _ in ROLES])), name="invitation_role_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="invitation",
            constraint=models.UniqueConstraint(
                condition=models.Q(("accepted", None), ("revoked", None)),
                fields=("organisation", "email"),
                name="invitation_open_once",
            ),
        ),
        migrations.RunPython(create_cache, migrations.RunPython.noop),
        migrations.RunPython(confirm_addresses, migrations.RunPython.noop),
        migrations.RunPython(note_sessions, migrations.RunPython.noop),
    ]
