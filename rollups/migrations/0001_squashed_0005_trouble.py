"""The tables of rollups as they are since trouble belongs to a day of an app."""

import django.db.models.deletion
from django.db import migrations, models

from spm.accounts.migrations._create_tables import CreateTables


class Migration(migrations.Migration):
    initial = True
    replaces = [
        ("rollups", "0001_initial"),
        ("rollups", "0002_corrections"),
        ("rollups", "0003_spreading"),
        ("rollups", "0004_words"),
        ("rollups", "0005_trouble"),
    ]
    dependencies = [
        ("accounts", "0001_squashed_0012_events_scope"),
    ]
    operations = [
        CreateTables(
            [
                migrations.CreateModel(
                    name="Spreading",
                    fields=[],
                    options={
                        "verbose_name": "placement of an app",
                        "verbose_name_plural": "placements",
                        "proxy": True,
                        "indexes": [],
                        "constraints": [],
                    },
                    bases=("accounts.app",),
                ),
                migrations.CreateModel(
                    name="Run",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("number", models.PositiveBigIntegerField(unique=True)),
                        (
                            "kind",
                            models.CharField(
                                choices=[
                                    ("minor", "Minor"),
                                    ("full", "Full"),
                                    ("upgrade", "Upgrade"),
                                    ("redistribute", "Redistribute"),
                                    ("seal", "Seal"),
                                    ("purge", "Purge"),
                                ],
                                max_length=12,
                            ),
                        ),
                        ("executor", models.CharField(max_length=10)),
                        (
                            "state",
                            models.CharField(
                                choices=[
                                    ("running", "Running"),
                                    ("done", "Done"),
                                    ("failed", "Failed"),
                                    ("lost", "Lost"),
                                    ("rolled back", "Rolled back"),
                                ],
                                default="running",
                                max_length=12,
                            ),
                        ),
                        ("units", models.PositiveIntegerField(default=0)),
                        ("units_total", models.PositiveIntegerField(default=0)),
                        ("samples", models.PositiveBigIntegerField(default=0)),
                        ("size_bytes", models.PositiveBigIntegerField(default=0)),
                        ("started", models.DateTimeField()),
                        ("finished", models.DateTimeField(blank=True, null=True)),
                        ("message", models.TextField(blank=True)),
                        (
                            "apps",
                            models.JSONField(
                                default=list, help_text="the numbers of the apps it looks at, while it works"
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["-number"],
                        "indexes": [models.Index(fields=["kind", "-started"], name="run_by_kind")],
                    },
                ),
                migrations.CreateModel(
                    name="Trouble",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        (
                            "act",
                            models.CharField(
                                help_text="what was tried: run, consider, widen, expire, purge or delete", max_length=20
                            ),
                        ),
                        ("day", models.DateField(blank=True, help_text="none: the whole app", null=True)),
                        ("reason", models.TextField()),
                        ("since", models.DateTimeField(help_text="when it was tried in vain for the first time")),
                        ("at", models.DateTimeField(help_text="when it was tried in vain for the last time")),
                        (
                            "app",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE, related_name="troubles", to="accounts.app"
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["app", "day"],
                    },
                ),
                migrations.CreateModel(
                    name="Correction",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("hour", models.DateTimeField()),
                        ("run", models.PositiveBigIntegerField(help_text="the number of the run that rebuilt it")),
                        (
                            "cause",
                            models.CharField(
                                choices=[
                                    ("late", "Late data"),
                                    ("retraction", "Retraction"),
                                    ("undo", "Undone retraction"),
                                    ("rollback", "Rolled back run"),
                                ],
                                max_length=10,
                            ),
                        ),
                        ("samples", models.PositiveBigIntegerField(default=0, help_text="samples that came in late")),
                        ("sources", models.JSONField(default=list)),
                        ("at", models.DateTimeField()),
                        (
                            "app",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="corrections",
                                to="accounts.app",
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["-at", "-hour", "-id"],
                        "indexes": [models.Index(fields=["app", "-at"], name="correction_by_app")],
                    },
                ),
                migrations.CreateModel(
                    name="RetractionRecord",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("number", models.PositiveBigIntegerField()),
                        ("samples", models.PositiveBigIntegerField()),
                        ("restored", models.PositiveBigIntegerField()),
                        ("series", models.PositiveBigIntegerField()),
                        ("hours", models.PositiveIntegerField()),
                        ("alerts", models.PositiveIntegerField(default=0)),
                        ("sealed", models.PositiveIntegerField(default=0)),
                        ("at_least", models.BooleanField(default=False)),
                        ("undone_by", models.CharField(blank=True, max_length=150)),
                        ("purged_by", models.CharField(blank=True, max_length=150)),
                        (
                            "app",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="retraction_records",
                                to="accounts.app",
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["-number"],
                        "constraints": [
                            models.UniqueConstraint(fields=("app", "number"), name="retraction_record_once")
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="RunDay",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("day", models.DateField()),
                        ("published", models.BooleanField(db_column="flipped")),
                        ("units", models.PositiveIntegerField()),
                        ("samples", models.PositiveBigIntegerField()),
                        ("size_bytes", models.PositiveBigIntegerField()),
                        ("rolled_back", models.BooleanField(default=False)),
                        (
                            "app",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE, related_name="run_days", to="accounts.app"
                            ),
                        ),
                        (
                            "run",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE, related_name="days", to="rollups.run"
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["app", "day"],
                        "constraints": [models.UniqueConstraint(fields=("run", "app", "day"), name="run_day_once")],
                    },
                ),
            ]
        ),
    ]
