import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    replaces = [
        ("alerts", "0009_kinds_of_rules"),
        ("alerts", "0010_delivery_times"),
        ("alerts", "0011_rule_files"),
        ("alerts", "0012_series_lanes"),
    ]

    dependencies = [
        ("accounts", "0009_store_binding"),
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
        migrations.AddField(
            model_name="notification",
            name="took_ms",
            field=models.IntegerField(default=0, help_text="the last attempt"),
        ),
        migrations.AddField(
            model_name="receiver",
            name="refreshed_ms",
            field=models.BigIntegerField(default=0, help_text="when an Alertmanager last heard again of all"),
        ),
        migrations.AddField(
            model_name="rule",
            name="place",
            field=models.IntegerField(default=0, help_text="in its group"),
        ),
        migrations.CreateModel(
            name="RuleGroup",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("file", models.CharField(max_length=200)),
                ("name", models.CharField(max_length=200)),
                ("place", models.IntegerField(default=0, help_text="in its file")),
                ("interval_ms", models.BigIntegerField(blank=True, help_text="null: the default", null=True)),
                ("limit", models.IntegerField(default=0, help_text="of the series of a recording rule; 0: none")),
                ("labels", models.JSONField(default=dict, help_text="for all rules of the group")),
                (
                    "app",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="rule_groups", to="accounts.app"
                    ),
                ),
            ],
            options={
                "ordering": ["file", "place"],
            },
        ),
        migrations.CreateModel(
            name="RecordingRule",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("place", models.IntegerField(default=0, help_text="in its group")),
                ("name", models.CharField(help_text="of the metric", max_length=120)),
                ("expr", models.TextField(max_length=4096)),
                ("labels", models.JSONField(default=dict)),
                ("error", models.TextField(blank=True)),
                ("created_ms", models.BigIntegerField()),
                ("changed_ms", models.BigIntegerField()),
                (
                    "app",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="recording_rules", to="accounts.app"
                    ),
                ),
                (
                    "group",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="recording_rules",
                        to="alerts.rulegroup",
                    ),
                ),
            ],
            options={
                "ordering": ["group__file", "group__place", "place"],
            },
        ),
        migrations.AddField(
            model_name="rule",
            name="group",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="rules",
                to="alerts.rulegroup",
            ),
        ),
        migrations.AddConstraint(
            model_name="rulegroup",
            constraint=models.UniqueConstraint(fields=("app", "file", "name"), name="one_rule_group"),
        ),
        migrations.CreateModel(
            name="SeriesLane",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("recorded_ms", models.BigIntegerField()),
                ("alerts_ms", models.BigIntegerField()),
                ("lease_until_ms", models.BigIntegerField(default=0)),
                (
                    "app",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="series_lane", to="accounts.app"
                    ),
                ),
            ],
        ),
    ]
