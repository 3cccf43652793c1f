"""Adds the number of the lane up to which ``ALERTS`` was written."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("alerts", "0019_words_sent_again")]

    operations = [
        migrations.AddField("serieslane", "alerts_seq", models.BigIntegerField(default=0)),
    ]
