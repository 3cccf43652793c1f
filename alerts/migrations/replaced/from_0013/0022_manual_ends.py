import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("alerts", "0021_first_acknowledgement"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AlterField(
            model_name="alertevent",
            name="before",
            field=models.CharField(
                choices=[
                    ("ok", "Ok"),
                    ("pending", "Pending"),
                    ("firing", "Firing"),
                    ("recovering", "Recovering"),
                    ("closed", "Closed"),
                    ("inactive", "Inactive"),
                    ("resolved", "Resolved"),
                ],
                max_length=10,
            ),
        ),
        migrations.AlterField(
            model_name="alertevent",
            name="state",
            field=models.CharField(
                choices=[
                    ("ok", "Ok"),
                    ("pending", "Pending"),
                    ("firing", "Firing"),
                    ("recovering", "Recovering"),
                    ("closed", "Closed"),
                    ("inactive", "Inactive"),
                    ("resolved", "Resolved"),
                ],
                max_length=10,
            ),
        ),
        migrations.AlterField(
            model_name="instance",
            name="phase",
            field=models.CharField(
                choices=[
                    ("ok", "Ok"),
                    ("pending", "Pending"),
                    ("firing", "Firing"),
                    ("recovering", "Recovering"),
                    ("closed", "Closed"),
                ],
                max_length=10,
            ),
        ),
        migrations.CreateModel(
            name="ManualEnd",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("fingerprint", models.CharField(blank=True, max_length=32)),
                (
                    "aspect",
                    models.CharField(
                        choices=[("value", "Value"), ("missing", "Missing"), ("error", "Error")], max_length=8
                    ),
                ),
                ("at_ms", models.BigIntegerField(help_text="the step")),
                ("seq", models.BigIntegerField(help_text="the lane's number that it took")),
                ("made_ms", models.BigIntegerField()),
                (
                    "by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "rule",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="manual_ends", to="alerts.rule"
                    ),
                ),
            ],
            options={
                "ordering": ["-at_ms", "-id"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("rule", "fingerprint", "aspect", "at_ms"), name="one_manual_end_per_step"
                    )
                ],
            },
        ),
    ]
