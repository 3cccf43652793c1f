"""The newest exemplars of each app get a table."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0006_source_period_before"),
        ("ingest", "0008_balances_and_dead_letters"),
    ]

    operations = [
        migrations.CreateModel(
            name="StoredExemplar",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
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
