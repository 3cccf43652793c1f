"""Adds the number up to which ``ALERTS`` was written, how long judging took, and how far the clock of telling came."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("alerts", "0019_words_sent_again")]

    operations = [
        migrations.AddField("serieslane", "alerts_seq", models.BigIntegerField(default=0)),
        migrations.AddField(
            "serieslane", "took_us", models.BigIntegerField(default=0, help_text="the last recording, in microseconds")
        ),
        migrations.AddField(
            "lane", "took_us", models.BigIntegerField(default=0, help_text="the last operation, in microseconds")
        ),
        migrations.CreateModel(
            "TellingClock",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("seen_ms", models.BigIntegerField()),
            ],
        ),
    ]
