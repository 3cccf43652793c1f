"""Operations keep what was known, and lanes what they owe. What was judged before was not kept, and is not judged again."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("alerts", "0013_links_and_confirmed_receivers"),
    ]

    operations = [
        migrations.AddField(
            model_name="lane",
            name="behind_ms",
            field=models.BigIntegerField(blank=True, help_text="since this step absences are not judged", null=True),
        ),
        migrations.AddField(
            model_name="lane",
            name="owed_metrics",
            field=models.JSONField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="lane",
            name="owed_ms",
            field=models.BigIntegerField(
                blank=True, help_text="samples from here on are to be judged again", null=True
            ),
        ),
        migrations.AddField(
            model_name="lane",
            name="rejudged_ms",
            field=models.BigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name="lane",
            name="retractions",
            field=models.JSONField(blank=True, default=list),
        ),
        migrations.AddField(
            model_name="lane",
            name="vector",
            field=models.BinaryField(default=b"", help_text="what the last operation knew"),
        ),
        migrations.AddField(
            model_name="operation",
            name="behind_ms",
            field=models.BigIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="operation",
            name="retractions",
            field=models.JSONField(blank=True, default=list),
        ),
        migrations.AddField(
            model_name="operation",
            name="silent",
            field=models.JSONField(blank=True, default=list),
        ),
        migrations.AddField(
            model_name="operation",
            name="vector",
            field=models.BinaryField(default=b""),
        ),
    ]
