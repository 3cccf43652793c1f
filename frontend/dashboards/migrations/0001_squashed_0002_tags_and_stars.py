"""The tables of dashboards as they are since they have tags and stars."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from spm.accounts.migrations._create_tables import CreateTables


class Migration(migrations.Migration):
    initial = True
    replaces = [("dashboards", "0001_dashboards"), ("dashboards", "0002_tags_and_stars")]

    dependencies = [
        ("accounts", "0001_squashed_0012_events_scope"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]
    operations = [
        CreateTables(
            [
                migrations.CreateModel(
                    name="Dashboard",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("uid", models.CharField(editable=False, max_length=16, unique=True)),
                        ("title", models.CharField(max_length=200)),
                        ("version", models.PositiveIntegerField(default=1)),
                        ("changed_ms", models.BigIntegerField()),
                        ("tags", models.JSONField(default=list)),
                        (
                            "app",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="dashboards",
                                to="accounts.app",
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["title", "pk"],
                    },
                ),
                migrations.CreateModel(
                    name="DashboardVersion",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("number", models.PositiveIntegerField()),
                        ("document", models.JSONField()),
                        ("size_bytes", models.PositiveIntegerField()),
                        ("author", models.CharField(max_length=150)),
                        ("note", models.CharField(blank=True, max_length=200)),
                        ("saved_ms", models.BigIntegerField()),
                        (
                            "dashboard",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="versions",
                                to="dashboards.dashboard",
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["-number"],
                        "constraints": [
                            models.UniqueConstraint(fields=("dashboard", "number"), name="dashboard_version_once")
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="Star",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        (
                            "dashboard",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="stars",
                                to="dashboards.dashboard",
                            ),
                        ),
                        (
                            "person",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="+",
                                to=settings.AUTH_USER_MODEL,
                            ),
                        ),
                    ],
                    options={
                        "constraints": [models.UniqueConstraint(fields=("person", "dashboard"), name="star_once")],
                    },
                ),
            ]
        ),
    ]
