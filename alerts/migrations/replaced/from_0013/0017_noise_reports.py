"""Adds noise reports, and contact points whose mail addresses get them: none asks for it until somebody says so."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0012_events_scope"),
        ("alerts", "0016_notification_budget"),
    ]

    operations = [
        migrations.AddField(
            model_name="contactpoint",
            name="wants_report",
            field=models.BooleanField(default=False, help_text="its mail addresses get the weekly noise report"),
        ),
        migrations.CreateModel(
            name="NoiseReport",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("from_ms", models.BigIntegerField()),
                ("to_ms", models.BigIntegerField()),
                ("made_ms", models.BigIntegerField()),
                ("rules", models.IntegerField(help_text="with an alert")),
                ("alerts", models.IntegerField(help_text="that began")),
                ("notifications", models.IntegerField(help_text="delivered, with at least one alert")),
                ("unattended", models.IntegerField(help_text="alerts that somebody heard of and nobody acted on")),
                (
                    "flaps",
                    models.IntegerField(
                        help_text="alerts that began soon after the last one of their series had ended"
                    ),
                ),
                ("is_cut", models.BooleanField(default=False)),
                (
                    "organisation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.organisation"
                    ),
                ),
            ],
            options={
                "ordering": ["-to_ms"],
            },
        ),
        migrations.CreateModel(
            name="NoisyRule",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("alerts", models.IntegerField(default=0)),
                ("notifications", models.IntegerField(default=0)),
                ("unattended", models.IntegerField(default=0)),
                ("flaps", models.IntegerField(default=0)),
                ("for_ms", models.BigIntegerField(default=0)),
                ("tried_notifications", models.IntegerField(null=True)),
                ("effects", models.JSONField(default=list)),
                ("untried", models.CharField(blank=True, max_length=500)),
                (
                    "report",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="noisy_rules", to="alerts.noisereport"
                    ),
                ),
                (
                    "rule",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="+", to="alerts.rule"),
                ),
            ],
            options={
                "ordering": ["-notifications", "-alerts", "id"],
            },
        ),
        migrations.AddConstraint(
            model_name="noisereport",
            constraint=models.UniqueConstraint(fields=("organisation", "to_ms"), name="one_noise_report"),
        ),
    ]
