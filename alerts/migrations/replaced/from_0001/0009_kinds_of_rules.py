"""Rules have a kind with its parameters, labels and annotations; existing rules compare with a threshold."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("alerts", "0008_telling"),
    ]

    operations = [
        migrations.AddField(
            model_name="rule",
            name="annotations",
            field=models.JSONField(blank=True, default=dict),
        ),
        migrations.AddField(
            model_name="rule",
            name="by",
            field=models.JSONField(blank=True, default=list),
        ),
        migrations.AddField(
            model_name="rule",
            name="forget_ms",
            field=models.BigIntegerField(default=86400000),
        ),
        migrations.AddField(
            model_name="rule",
            name="horizon_ms",
            field=models.BigIntegerField(default=14400000),
        ),
        migrations.AddField(
            model_name="rule",
            name="kind",
            field=models.CharField(
                choices=[
                    ("threshold", "threshold"),
                    ("rate", "rate"),
                    ("change", "change"),
                    ("heartbeat", "heartbeat"),
                    ("anomaly", "anomaly"),
                    ("forecast", "forecast"),
                    ("composite", "composite"),
                ],
                default="threshold",
                max_length=16,
            ),
        ),
        migrations.AddField(
            model_name="rule",
            name="labels",
            field=models.JSONField(blank=True, default=dict),
        ),
        migrations.AddField(
            model_name="rule",
            name="spread_min",
            field=models.FloatField(default=0.0),
        ),
        migrations.AddField(
            model_name="rule",
            name="weeks",
            field=models.IntegerField(default=4),
        ),
        migrations.AddField(
            model_name="rule",
            name="window_ms",
            field=models.BigIntegerField(default=300000),
        ),
    ]
