import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    replaces = [
        ("alerts", "0014_knowledge_of_operations"),
        ("alerts", "0015_escalation"),
        ("alerts", "0016_notification_budget"),
        ("alerts", "0017_noise_reports"),
        ("alerts", "0018_schedule_of_rules"),
        ("alerts", "0019_words_sent_again"),
        ("alerts", "0020_times_of_alerts"),
    ]

    dependencies = [
        ("accounts", "0012_events_scope"),
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
        migrations.AddField(
            model_name="lastword",
            name="not_before_ms",
            field=models.BigIntegerField(default=0, help_text="by escalation; 0: at once"),
        ),
        migrations.CreateModel(
            name="EscalationStep",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("after_ms", models.BigIntegerField(help_text="since the alert became known")),
                (
                    "contact_point",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="alerts.contactpoint"
                    ),
                ),
                (
                    "policy",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="escalation", to="alerts.policy"
                    ),
                ),
            ],
            options={
                "ordering": ["after_ms"],
                "constraints": [models.UniqueConstraint(fields=("policy", "after_ms"), name="one_escalation_step")],
            },
        ),
        migrations.CreateModel(
            name="NotificationBudget",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("tokens", models.FloatField()),
                ("tokens_ms", models.BigIntegerField()),
                (
                    "organisation",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.organisation"
                    ),
                ),
            ],
        ),
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
        migrations.RenameField(
            model_name="receiver",
            old_name="refreshed_ms",
            new_name="refresh_from_ms",
        ),
        migrations.AlterField(
            model_name="receiver",
            name="refresh_from_ms",
            field=models.BigIntegerField(
                default=0, help_text="from then on an Alertmanager is sent again what goes on"
            ),
        ),
        migrations.AddField(
            model_name="lastword",
            name="sent_ms",
            field=models.BigIntegerField(default=0, help_text="when an Alertmanager was last sent it"),
        ),
        migrations.AddField(
            model_name="notification",
            name="texts",
            field=models.JSONField(help_text="annotations that rest on data, by episode, read once", null=True),
        ),
        migrations.AddField(
            model_name="serieslane",
            name="alerts_seq",
            field=models.BigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name="serieslane",
            name="took_us",
            field=models.BigIntegerField(default=0, help_text="the last recording, in microseconds"),
        ),
        migrations.AddField(
            model_name="lane",
            name="took_us",
            field=models.BigIntegerField(default=0, help_text="the last operation, in microseconds"),
        ),
        migrations.CreateModel(
            name="TellingClock",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("seen_ms", models.BigIntegerField()),
            ],
        ),
    ]
