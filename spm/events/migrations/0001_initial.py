"""The tables of events, their stream, and the groups that consume it."""

import django.db.models.deletion
from django.db import migrations, models

from spm.accounts.migrations._create_tables import CreateTables


class Migration(migrations.Migration):
    initial = True
    dependencies = [
        ("accounts", "0011_tokens_and_audit"),
    ]
    operations = [
        CreateTables(
            [
                migrations.CreateModel(
                    name="StreamHead",
                    fields=[
                        (
                            "organisation",
                            models.OneToOneField(
                                on_delete=django.db.models.deletion.CASCADE,
                                primary_key=True,
                                related_name="stream_head",
                                serialize=False,
                                to="accounts.organisation",
                            ),
                        ),
                        ("position", models.BigIntegerField(default=0)),
                        ("oldest", models.BigIntegerField(default=0)),
                    ],
                ),
                migrations.CreateModel(
                    name="ConsumerGroup",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("name", models.CharField(max_length=64)),
                        ("partition_by", models.CharField(default="key", max_length=64)),
                        (
                            "kinds",
                            models.JSONField(default=list, help_text="of events that the group reads; empty: of all"),
                        ),
                        ("fence", models.BigIntegerField(default=0)),
                        ("made_ms", models.BigIntegerField()),
                        (
                            "app",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.app"
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["name"],
                        "constraints": [models.UniqueConstraint(fields=("app", "name"), name="consumer_group_once")],
                    },
                ),
                migrations.CreateModel(
                    name="Consumer",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("name", models.CharField(max_length=32, unique=True)),
                        ("fence", models.BigIntegerField(default=0)),
                        ("lease_s", models.PositiveIntegerField(default=30)),
                        ("lease_until_ms", models.BigIntegerField()),
                        (
                            "group",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="consumers",
                                to="events.consumergroup",
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["id"],
                    },
                ),
                migrations.CreateModel(
                    name="Event",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        (
                            "position",
                            models.BigIntegerField(
                                blank=True, help_text="in the organisation's stream; none: not relayed", null=True
                            ),
                        ),
                        ("event_id", models.CharField(max_length=64)),
                        ("kind", models.CharField(max_length=32)),
                        ("key", models.CharField(help_text="events of one key are read in order", max_length=200)),
                        ("text", models.CharField(max_length=500)),
                        ("link", models.CharField(blank=True, max_length=500)),
                        ("at_ms", models.BigIntegerField()),
                        ("end_ms", models.BigIntegerField(blank=True, null=True)),
                        ("body", models.JSONField(default=dict)),
                        ("author", models.CharField(blank=True, max_length=150)),
                        (
                            "is_posted",
                            models.BooleanField(
                                default=False, help_text="written by a person or a program, not by the product"
                            ),
                        ),
                        ("made_ms", models.BigIntegerField()),
                        (
                            "app",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.app"
                            ),
                        ),
                        (
                            "organisation",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="+",
                                to="accounts.organisation",
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["-at_ms", "-id"],
                        "indexes": [
                            models.Index(
                                condition=models.Q(("position", None)),
                                fields=["organisation", "id"],
                                name="event_not_relayed",
                            ),
                            models.Index(fields=["app", "position"], name="event_of_app"),
                            models.Index(fields=["app", "at_ms"], name="event_at"),
                        ],
                        "constraints": [
                            models.UniqueConstraint(fields=("app", "event_id"), name="event_id_once"),
                            models.UniqueConstraint(fields=("organisation", "position"), name="event_position_once"),
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="Partition",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("number", models.PositiveIntegerField()),
                        ("position", models.BigIntegerField()),
                        ("fetched", models.BigIntegerField(blank=True, null=True)),
                        (
                            "consumer",
                            models.ForeignKey(
                                blank=True,
                                null=True,
                                on_delete=django.db.models.deletion.SET_NULL,
                                related_name="partitions",
                                to="events.consumer",
                            ),
                        ),
                        (
                            "group",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="partitions",
                                to="events.consumergroup",
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["number"],
                        "constraints": [models.UniqueConstraint(fields=("group", "number"), name="partition_once")],
                    },
                ),
            ]
        ),
    ]
