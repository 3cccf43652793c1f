"""Adds charts of mails, acknowledgements by links, and receivers that confirm."""

import django.db.models.deletion
from django.db import migrations, models


def confirm_known_receivers(apps, schema_editor):
    """Receivers that got notifications before the upgrade go on getting them."""
    receivers = apps.get_model("alerts", "Receiver").objects.using(schema_editor.connection.alias)
    receivers.filter(confirmed_ms=None).update(confirmed_ms=models.F("created_ms"))


class Migration(migrations.Migration):
    dependencies = [
        ("alerts", "0012_series_lanes"),
    ]

    operations = [
        migrations.AddField(
            model_name="acknowledgement",
            name="receiver",
            field=models.ForeignKey(
                help_text="by its link",
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to="alerts.receiver",
            ),
        ),
        migrations.AddField(
            model_name="notification",
            name="chart",
            field=models.JSONField(help_text="the points of its chart, read once", null=True),
        ),
        migrations.AddField(
            model_name="receiver",
            name="confirmed_ms",
            field=models.BigIntegerField(help_text="since when it gets notifications; null: it does not", null=True),
        ),
        migrations.AddField(
            model_name="receiver",
            name="is_member",
            field=models.BooleanField(default=True, help_text="it was the address of a member when it was written"),
        ),
        migrations.RunPython(confirm_known_receivers, migrations.RunPython.noop),
    ]
