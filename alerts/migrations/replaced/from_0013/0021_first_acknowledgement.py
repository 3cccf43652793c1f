"""Acknowledgements keep when an alert was taken first; of those before, the latest time is all that is known."""

from django.db import migrations, models
from django.db.models import F


def _copy_times(apps, editor):
    rows = apps.get_model("alerts", "Acknowledgement").objects.filter(first_ms=0)
    rows.update(first_ms=F("at_ms"))


class Migration(migrations.Migration):
    dependencies = [("alerts", "0020_times_of_alerts")]

    operations = [
        migrations.AddField(
            "acknowledgement",
            "first_ms",
            models.BigIntegerField(default=0, help_text="when it was taken for the first time"),
        ),
        migrations.RunPython(_copy_times, migrations.RunPython.noop),
    ]
