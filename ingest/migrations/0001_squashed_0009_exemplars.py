"""The tables of ingest as they are since exemplars are kept."""

import django.db.models.deletion
from django.db import migrations, models

from spm.accounts.migrations._create_tables import CreateTables


class Migration(migrations.Migration):
    initial = True
    replaces = [
        ("ingest", "0001_initial"),
        ("ingest", "0002_letter_box"),
        ("ingest", "0003_account_book"),
        ("ingest", "0004_agents"),
        ("ingest", "0005_heartbeats"),
        ("ingest", "0006_descriptions"),
        ("ingest", "0007_agent_twins"),
        ("ingest", "0008_balances_and_dead_letters"),
        ("ingest", "0009_exemplars"),
    ]
    dependencies = [
        ("accounts", "0001_squashed_0012_events_scope"),
    ]
    operations = [
        CreateTables(
            [
                migrations.CreateModel(
                    name="AppBalance",
                    fields=[],
                    options={
                        "verbose_name": "balance of an app",
                        "verbose_name_plural": "balances",
                        "proxy": True,
                        "indexes": [],
                        "constraints": [],
                    },
                    bases=("accounts.app",),
                ),
                migrations.CreateModel(
                    name="AppDeadLetters",
                    fields=[],
                    options={
                        "verbose_name": "dead letters of an app",
                        "verbose_name_plural": "dead letters",
                        "proxy": True,
                        "indexes": [],
                        "constraints": [],
                    },
                    bases=("accounts.app",),
                ),
                migrations.CreateModel(
                    name="Agent",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("name", models.CharField(max_length=255)),
                        ("version", models.CharField(blank=True, max_length=40)),
                        ("platform", models.CharField(blank=True, max_length=200)),
                        ("period_ms", models.PositiveIntegerField(help_text="between two rounds of its collectors")),
                        ("started", models.DateTimeField(help_text="when its process started")),
                        (
                            "process_ms",
                            models.BigIntegerField(
                                help_text="its start by its own clock: tells processes apart", null=True
                            ),
                        ),
                        ("twin", models.DateTimeField(help_text="when two of this name were last heard", null=True)),
                        ("first_seen", models.DateTimeField()),
                        ("last_seen", models.DateTimeField(help_text="its last heartbeat")),
                        (
                            "spool",
                            models.CharField(
                                blank=True, help_text="the spool that numbers its messages", max_length=12
                            ),
                        ),
                        ("sequence", models.BigIntegerField(default=0, help_text="the number of its newest message")),
                        ("spooled", models.BigIntegerField(default=0, help_text="messages that wait on its disk")),
                        (
                            "oldest_ms",
                            models.BigIntegerField(default=0, help_text="how long the oldest of them has waited"),
                        ),
                        ("dropped_messages", models.BigIntegerField(default=0)),
                        ("dropped_samples", models.BigIntegerField(default=0)),
                        (
                            "offset_ms",
                            models.BigIntegerField(help_text="how far its clock is ahead of ours", null=True),
                        ),
                        ("tags", models.JSONField(default=dict)),
                        ("collectors", models.JSONField(default=dict, help_text="the state of each: ok, or its error")),
                        ("etag", models.CharField(blank=True, help_text="of the settings it applied", max_length=32)),
                        (
                            "refused",
                            models.JSONField(default=dict, help_text="pushed settings it did not apply, and why"),
                        ),
                        (
                            "app",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE, related_name="agents", to="accounts.app"
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["name"],
                        "constraints": [models.UniqueConstraint(fields=("app", "name"), name="agent_once")],
                    },
                ),
                migrations.CreateModel(
                    name="AgentSettings",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("match", models.CharField(help_text="*, tag=value, or an agent's name", max_length=300)),
                        ("settings", models.JSONField(default=dict)),
                        ("changed", models.DateTimeField()),
                        ("changed_by", models.CharField(max_length=150)),
                        (
                            "app",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="agent_settings",
                                to="accounts.app",
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["match"],
                        "constraints": [models.UniqueConstraint(fields=("app", "match"), name="agent_settings_once")],
                    },
                ),
                migrations.CreateModel(
                    name="Arrival",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("way", models.CharField(max_length=40)),
                        ("source", models.CharField(help_text="the source that came last", max_length=255)),
                        ("first_seen", models.DateTimeField()),
                        ("last_seen", models.DateTimeField()),
                        (
                            "app",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE, related_name="arrivals", to="accounts.app"
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["way"],
                        "constraints": [models.UniqueConstraint(fields=("app", "way"), name="arrival_once")],
                    },
                ),
                migrations.CreateModel(
                    name="Heartbeat",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("name", models.CharField(max_length=120)),
                        ("key", models.UUIDField(editable=False, unique=True)),
                        ("created", models.DateTimeField()),
                        (
                            "last_ms",
                            models.BigIntegerField(editable=False, help_text="when it last reported", null=True),
                        ),
                        (
                            "last_act",
                            models.CharField(
                                blank=True, editable=False, help_text="what it reported then", max_length=10
                            ),
                        ),
                        (
                            "started_ms",
                            models.BigIntegerField(editable=False, help_text="of a run that has not ended", null=True),
                        ),
                        (
                            "app",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="heartbeats",
                                to="accounts.app",
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["name"],
                        "constraints": [models.UniqueConstraint(fields=("app", "name"), name="heartbeat_once")],
                    },
                ),
                migrations.CreateModel(
                    name="MetricDescription",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("metric", models.CharField(max_length=256)),
                        (
                            "type",
                            models.CharField(
                                help_text="Prometheus' type: counter, gauge, histogram, summary …", max_length=20
                            ),
                        ),
                        ("help", models.TextField(blank=True)),
                        ("unit", models.CharField(blank=True, max_length=100)),
                        (
                            "app",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="metric_descriptions",
                                to="accounts.app",
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["metric"],
                        "constraints": [
                            models.UniqueConstraint(fields=("app", "metric"), name="metric_described_once")
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="RejectedLine",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("time_ms", models.BigIntegerField(help_text="when it was rejected")),
                        ("source", models.CharField(max_length=255)),
                        (
                            "way",
                            models.CharField(
                                blank=True, help_text="the protocol, or the program that speaks it", max_length=40
                            ),
                        ),
                        (
                            "line",
                            models.PositiveIntegerField(
                                help_text="its number in its body, from 1; 0: the body, or a series"
                            ),
                        ),
                        ("reason", models.CharField(max_length=300)),
                        ("example", models.CharField(blank=True, help_text="its first characters", max_length=120)),
                        (
                            "app",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="rejected_lines",
                                to="accounts.app",
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["-id"],
                        "indexes": [models.Index(fields=["app", "-id"], name="rejected_line_of_app")],
                    },
                ),
                migrations.CreateModel(
                    name="StoredExemplar",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        (
                            "digest",
                            models.BigIntegerField(
                                help_text="of series, time, value and labels: one that comes again is the same"
                            ),
                        ),
                        ("metric", models.CharField(max_length=256)),
                        ("series", models.BinaryField(help_text="its canonical form")),
                        ("at_ms", models.BigIntegerField(help_text="its time")),
                        ("bits", models.BigIntegerField(help_text="of its value")),
                        ("labels", models.TextField(help_text="its own: JSON, a list of names and values")),
                        ("source", models.CharField(max_length=255)),
                        ("stamp_ms", models.BigIntegerField(help_text="when its message was accepted")),
                        (
                            "app",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE, related_name="exemplars", to="accounts.app"
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["-at_ms", "-id"],
                        "indexes": [
                            models.Index(fields=["app", "at_ms", "id"], name="exemplar_of_app"),
                            models.Index(fields=["app", "metric", "at_ms", "id"], name="exemplar_of_metric"),
                        ],
                        "constraints": [models.UniqueConstraint(fields=("app", "digest"), name="exemplar_once")],
                    },
                ),
            ]
        ),
    ]
