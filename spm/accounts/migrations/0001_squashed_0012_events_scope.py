"""The tables of accounts as they are since tokens may read events."""

import django.core.validators
import django.db.models.deletion
from django.conf import settings
from django.core.management import call_command
from django.db import migrations, models

from spm.accounts.migrations._create_tables import CreateTables


def create_cache(apps, schema_editor):
    call_command("createcachetable", database=schema_editor.connection.alias, verbosity=0)


class Migration(migrations.Migration):
    initial = True
    replaces = [
        ("accounts", "0001_initial"),
        ("accounts", "0002_retention"),
        ("accounts", "0003_internal"),
        ("accounts", "0004_source_period"),
        ("accounts", "0005_quotas"),
        ("accounts", "0006_source_period_before"),
        ("accounts", "0007_logins"),
        ("accounts", "0008_rate_help"),
        ("accounts", "0009_store_binding"),
        ("accounts", "0010_people"),
        ("accounts", "0011_tokens_and_audit"),
        ("accounts", "0012_events_scope"),
    ]
    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        # Tables of other packages come first: each of their migrations would render all tables of ours again.
        ("account", "0009_emailaddress_unique_primary_email"),
        ("admin", "0003_logentry_add_action_flag_choices"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("mfa", "0003_authenticator_type_uniq"),
        ("sessions", "0001_initial"),
        ("socialaccount", "0006_alter_socialaccount_extra_data"),
        ("usersessions", "0001_initial"),
    ]
    operations = [
        CreateTables(
            [
                migrations.CreateModel(
                    name="LoginBudget",
                    fields=[
                        ("key", models.CharField(max_length=32, primary_key=True, serialize=False)),
                        ("account", models.CharField(blank=True, db_index=True, max_length=32)),
                        ("failures", models.PositiveIntegerField(default=0)),
                        ("last_ms", models.BigIntegerField(default=0)),
                        ("known_until_ms", models.BigIntegerField(default=0)),
                        (
                            "noticed_ms",
                            models.BigIntegerField(
                                default=0, help_text="of an account: when its owner was last written to"
                            ),
                        ),
                        ("expires_ms", models.BigIntegerField(db_index=True, default=0)),
                    ],
                ),
                migrations.CreateModel(
                    name="Organisation",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("name", models.CharField(max_length=120)),
                        ("internal", models.BooleanField(default=False, editable=False)),
                        ("created", models.DateTimeField(auto_now_add=True)),
                        (
                            "going",
                            models.DateTimeField(
                                blank=True, editable=False, help_text="when somebody deleted it", null=True
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["name"],
                    },
                ),
                migrations.CreateModel(
                    name="StoreBinding",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("identity", models.BinaryField(max_length=16)),
                        ("is_confirmed", models.BooleanField(default=False, editable=False)),
                    ],
                ),
                migrations.CreateModel(
                    name="LoginNotice",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("address", models.CharField(max_length=64)),
                        ("device", models.CharField(max_length=32)),
                        ("at_ms", models.BigIntegerField()),
                        (
                            "user",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="+",
                                to=settings.AUTH_USER_MODEL,
                            ),
                        ),
                    ],
                ),
                migrations.CreateModel(
                    name="App",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        ("name", models.CharField(max_length=120)),
                        ("created", models.DateTimeField(auto_now_add=True)),
                        ("raw_days", models.PositiveIntegerField(blank=True, default=90, null=True)),
                        ("hour_days", models.PositiveIntegerField(blank=True, default=400, null=True)),
                        ("day_days", models.PositiveIntegerField(blank=True, null=True)),
                        (
                            "series_max",
                            models.PositiveBigIntegerField(
                                blank=True,
                                help_text="new ones beyond are refused; empty: the site's 500,000",
                                null=True,
                                validators=[django.core.validators.MaxValueValidator(20000000)],
                                verbose_name="series at most",
                            ),
                        ),
                        (
                            "rate_max",
                            models.PositiveBigIntegerField(
                                blank=True,
                                help_text="on average; empty: the site's (SPM_APP_RATE_MAX)",
                                null=True,
                                validators=[django.core.validators.MinValueValidator(1)],
                                verbose_name="samples a second at most",
                            ),
                        ),
                        (
                            "going",
                            models.DateTimeField(
                                blank=True, editable=False, help_text="when somebody deleted it", null=True
                            ),
                        ),
                        (
                            "organisation",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.PROTECT,
                                related_name="apps",
                                to="accounts.organisation",
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["name", "id"],
                        "constraints": [
                            models.UniqueConstraint(
                                condition=models.Q(("going", None)),
                                fields=("organisation", "name"),
                                name="app_name_once",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(("id__gte", 1), ("id__lte", 4294967295)), name="app_id_fits_the_key"
                            ),
                            models.CheckConstraint(
                                condition=models.Q(("raw_days__gte", 1)), name="app_raw_days_one_or_more"
                            ),
                            models.CheckConstraint(
                                condition=models.Q(("raw_days__lte", models.F("hour_days"))),
                                name="app_hours_outlive_raw",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(("hour_days__lte", models.F("day_days"))),
                                name="app_days_outlive_hours",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(
                                    models.Q(("raw_days__isnull", False), ("hour_days", None), _connector="OR"),
                                    models.Q(("hour_days__isnull", False), ("day_days", None), _connector="OR"),
                                ),
                                name="app_for_ever_holds_upwards",
                            ),
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="Source",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("name", models.CharField(max_length=255)),
                        ("first_seen", models.DateTimeField()),
                        ("last_seen", models.DateTimeField()),
                        ("period_ms", models.PositiveIntegerField(blank=True, null=True)),
                        ("period_since", models.DateTimeField(blank=True, null=True)),
                        ("period_before_ms", models.PositiveIntegerField(blank=True, null=True)),
                        (
                            "app",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE, related_name="sources", to="accounts.app"
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["name"],
                        "constraints": [models.UniqueConstraint(fields=("app", "name"), name="source_once")],
                    },
                ),
                migrations.CreateModel(
                    name="Token",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("name", models.CharField(max_length=120)),
                        (
                            "scopes",
                            models.CharField(
                                help_text="ingest, read, events, write, admin; separated by spaces", max_length=40
                            ),
                        ),
                        ("prefix", models.CharField(editable=False, max_length=24, unique=True)),
                        ("digest", models.BinaryField(max_length=32)),
                        ("created", models.DateTimeField(auto_now_add=True)),
                        (
                            "expires",
                            models.DateTimeField(
                                blank=True, editable=False, help_text="from when on it is refused", null=True
                            ),
                        ),
                        ("last_used", models.DateTimeField(blank=True, editable=False, null=True)),
                        ("revoked", models.DateTimeField(blank=True, editable=False, null=True)),
                        (
                            "app",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE, related_name="tokens", to="accounts.app"
                            ),
                        ),
                        (
                            "created_by",
                            models.ForeignKey(
                                blank=True,
                                editable=False,
                                null=True,
                                on_delete=django.db.models.deletion.SET_NULL,
                                related_name="+",
                                to=settings.AUTH_USER_MODEL,
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["-created", "-id"],
                    },
                ),
                migrations.CreateModel(
                    name="Membership",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        (
                            "role",
                            models.CharField(
                                choices=[
                                    ("owner", "Owner"),
                                    ("admin", "Admin"),
                                    ("editor", "Editor"),
                                    ("viewer", "Viewer"),
                                ],
                                default="viewer",
                                max_length=10,
                            ),
                        ),
                        ("created", models.DateTimeField(auto_now_add=True)),
                        (
                            "user",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="memberships",
                                to=settings.AUTH_USER_MODEL,
                            ),
                        ),
                        (
                            "organisation",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="memberships",
                                to="accounts.organisation",
                            ),
                        ),
                    ],
                    options={
                        "constraints": [
                            models.UniqueConstraint(fields=("organisation", "user"), name="membership_once"),
                            models.CheckConstraint(
                                condition=models.Q(("role__in", ["owner", "admin", "editor", "viewer"])),
                                name="membership_role_known",
                            ),
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="Invitation",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("email", models.EmailField(max_length=254)),
                        (
                            "role",
                            models.CharField(
                                choices=[
                                    ("owner", "Owner"),
                                    ("admin", "Admin"),
                                    ("editor", "Editor"),
                                    ("viewer", "Viewer"),
                                ],
                                default="viewer",
                                max_length=10,
                            ),
                        ),
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
                    options={
                        "ordering": ["-id"],
                        "constraints": [
                            models.CheckConstraint(
                                condition=models.Q(("role__in", ["owner", "admin", "editor", "viewer"])),
                                name="invitation_role_known",
                            ),
                            models.UniqueConstraint(
                                condition=models.Q(("accepted", None), ("revoked", None)),
                                fields=("organisation", "email"),
                                name="invitation_open_once",
                            ),
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="AuditEntry",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("actor_name", models.CharField(blank=True, max_length=150)),
                        ("action", models.CharField(max_length=60)),
                        ("subject", models.CharField(blank=True, max_length=200)),
                        ("detail", models.JSONField(default=dict)),
                        (
                            "address",
                            models.CharField(
                                blank=True,
                                db_default="",
                                default="",
                                help_text="from where a person did it",
                                max_length=45,
                            ),
                        ),
                        ("at", models.DateTimeField(auto_now_add=True)),
                        (
                            "actor",
                            models.ForeignKey(
                                null=True,
                                on_delete=django.db.models.deletion.SET_NULL,
                                related_name="audit_entries",
                                to=settings.AUTH_USER_MODEL,
                            ),
                        ),
                        (
                            "organisation",
                            models.ForeignKey(
                                null=True,
                                on_delete=django.db.models.deletion.SET_NULL,
                                related_name="audit_entries",
                                to="accounts.organisation",
                            ),
                        ),
                    ],
                    options={
                        "verbose_name_plural": "audit entries",
                        "ordering": ["-id"],
                        "indexes": [models.Index(fields=["organisation", "-id"], name="audit_of_organisation")],
                    },
                ),
            ]
        ),
        migrations.RunPython(create_cache, migrations.RunPython.noop),
    ]
