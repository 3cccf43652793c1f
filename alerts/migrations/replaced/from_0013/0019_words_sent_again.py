"""Adds when an Alertmanager was last sent each alert, and the texts of a notification that are read from data."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("alerts", "0018_schedule_of_rules")]

    operations = [
        migrations.RenameField("receiver", "refreshed_ms", "refresh_from_ms"),
        migrations.AlterField(
            "receiver",
            "refresh_from_ms",
            models.BigIntegerField(default=0, help_text="from then on an Alertmanager is sent again what goes on"),
        ),
        migrations.AddField(
            "lastword",
            "sent_ms",
            models.BigIntegerField(default=0, help_text="when an Alertmanager was last sent it"),
        ),
        migrations.AddField(
            "notification",
            "texts",
            models.JSONField(help_text="annotations that rest on data, by episode, read once", null=True),
        ),
    ]
