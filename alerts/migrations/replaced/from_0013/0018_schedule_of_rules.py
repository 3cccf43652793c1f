"""Adds the schedule of rules, the times at which they are told; rules that are there are told at any time."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("alerts", "0017_noise_reports"),
    ]

    operations = [
        migrations.AddField(
            model_name="rule",
            name="schedule_cron",
            field=models.CharField(blank=True, help_text="when its alerts are told; empty: always", max_length=120),
        ),
        migrations.AddField(
            model_name="rule",
            name="schedule_ms",
            field=models.BigIntegerField(default=36000000, help_text="how long alerts are told then"),
        ),
        migrations.AddField(
            model_name="rule",
            name="schedule_zone",
            field=models.CharField(default="UTC", max_length=64),
        ),
    ]
