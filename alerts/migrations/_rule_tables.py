"""The tables of rules and of the lanes in which they judge, for the migration that makes all tables of alerts at once."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import alerts.judging.conditions

TABLES = [
    migrations.CreateModel(
        name="Lane",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("seq", models.BigIntegerField(default=0)),
            ("position_ms", models.BigIntegerField(help_text="judged up to this step")),
            ("first_ms", models.BigIntegerField(help_text="the step before the first one that was judged")),
            ("waiting", models.TextField(blank=True, help_text="why the next step is not judged yet")),
            ("vector", models.BinaryField(default=b"", help_text="what the last operation knew")),
            ("retractions", models.JSONField(blank=True, default=list)),
            (
                "behind_ms",
                models.BigIntegerField(blank=True, help_text="since this step absences are not judged", null=True),
            ),
            (
                "owed_ms",
                models.BigIntegerField(blank=True, help_text="samples from here on are to be judged again", null=True),
            ),
            ("owed_metrics", models.JSONField(blank=True, null=True)),
            ("rejudged_ms", models.BigIntegerField(default=0)),
            ("lease_until_ms", models.BigIntegerField(default=0)),
            ("took_us", models.BigIntegerField(default=0, help_text="the last operation, in microseconds")),
            (
                "app",
                models.OneToOneField(
                    on_delete=django.db.models.deletion.CASCADE, related_name="lane", to="accounts.app"
                ),
            ),
        ],
        options={
            "indexes": [models.Index(fields=["position_ms"], name="alerts_lane_positio_88891e_idx")],
        },
    ),
    migrations.CreateModel(
        name="SeriesLane",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("recorded_ms", models.BigIntegerField()),
            ("alerts_ms", models.BigIntegerField()),
            ("alerts_seq", models.BigIntegerField(default=0)),
            ("took_us", models.BigIntegerField(default=0, help_text="the last recording, in microseconds")),
            ("lease_until_ms", models.BigIntegerField(default=0)),
            (
                "app",
                models.OneToOneField(
                    on_delete=django.db.models.deletion.CASCADE, related_name="series_lane", to="accounts.app"
                ),
            ),
        ],
    ),
    migrations.CreateModel(
        name="Operation",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("seq", models.BigIntegerField()),
            (
                "kind",
                models.CharField(choices=[("judge", "Judge"), ("skip", "Skip"), ("rewind", "Rewind")], max_length=8),
            ),
            ("after_ms", models.BigIntegerField()),
            ("upto_ms", models.BigIntegerField()),
            ("made_ms", models.BigIntegerField()),
            ("vector", models.BinaryField(default=b"")),
            ("retractions", models.JSONField(blank=True, default=list)),
            ("behind_ms", models.BigIntegerField(blank=True, null=True)),
            ("silent", models.JSONField(blank=True, default=list)),
            (
                "lane",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="operations", to="alerts.lane"
                ),
            ),
        ],
        options={
            "ordering": ["-seq"],
            "indexes": [models.Index(fields=["made_ms"], name="alerts_oper_made_ms_c50e54_idx")],
            "constraints": [models.UniqueConstraint(fields=("lane", "seq"), name="one_operation_per_number")],
        },
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
            "constraints": [models.UniqueConstraint(fields=("app", "file", "name"), name="one_rule_group")],
        },
    ),
    migrations.CreateModel(
        name="Rule",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("name", models.CharField(max_length=120)),
            (
                "kind",
                models.CharField(
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
            ("expr", models.TextField(max_length=4096)),
            ("window_ms", models.BigIntegerField(default=300000)),
            ("horizon_ms", models.BigIntegerField(default=14400000)),
            ("forget_ms", models.BigIntegerField(default=86400000)),
            ("weeks", models.IntegerField(default=4)),
            ("spread_min", models.FloatField(default=0.0)),
            ("by", models.JSONField(blank=True, default=list)),
            (
                "comparator",
                models.CharField(
                    blank=True,
                    choices=[
                        ("", "the expression decides"),
                        (">", ">"),
                        (">=", ">="),
                        ("<", "<"),
                        ("<=", "<="),
                        ("==", "=="),
                        ("!=", "!="),
                    ],
                    default=">",
                    max_length=2,
                ),
            ),
            ("threshold", models.FloatField(default=0.0)),
            ("recovery", models.FloatField(blank=True, null=True)),
            ("for_ms", models.BigIntegerField(default=0)),
            ("keep_firing_for_ms", models.BigIntegerField(default=0)),
            (
                "missing",
                models.CharField(
                    choices=[
                        ("hold", "keep the state for a while"),
                        ("resolve", "it is well"),
                        ("alert", "it is an alert of its own"),
                    ],
                    default=alerts.judging.conditions.MissingPolicy["HOLD"],
                    max_length=8,
                ),
            ),
            ("hold_ms", models.BigIntegerField(default=900000)),
            ("missing_for_ms", models.BigIntegerField(default=300000)),
            (
                "severity",
                models.CharField(
                    choices=[("info", "Info"), ("warning", "Warning"), ("critical", "Critical")],
                    default="warning",
                    max_length=8,
                ),
            ),
            ("labels", models.JSONField(blank=True, default=dict)),
            ("annotations", models.JSONField(blank=True, default=dict)),
            ("receivers", models.JSONField(default=list, help_text="who gets the messages")),
            (
                "schedule_cron",
                models.CharField(blank=True, help_text="when its alerts are told; empty: always", max_length=120),
            ),
            ("schedule_zone", models.CharField(default="UTC", max_length=64)),
            ("schedule_ms", models.BigIntegerField(default=36000000, help_text="how long alerts are told then")),
            ("enabled", models.BooleanField(default=True)),
            ("place", models.IntegerField(default=0, help_text="in its group")),
            ("created_ms", models.BigIntegerField()),
            ("changed_ms", models.BigIntegerField()),
            ("deleted_ms", models.BigIntegerField(blank=True, null=True)),
            (
                "app",
                models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="rules", to="accounts.app"),
            ),
            (
                "created_by",
                models.ForeignKey(
                    blank=True,
                    null=True,
                    on_delete=django.db.models.deletion.SET_NULL,
                    related_name="+",
                    to=settings.AUTH_USER_MODEL,
                ),
            ),
            (
                "group",
                models.ForeignKey(
                    blank=True,
                    null=True,
                    on_delete=django.db.models.deletion.SET_NULL,
                    related_name="rules",
                    to="alerts.rulegroup",
                ),
            ),
        ],
        options={
            "ordering": ["name", "id"],
        },
    ),
    migrations.CreateModel(
        name="RuleVersionRow",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("from_ms", models.BigIntegerField()),
            ("until_ms", models.BigIntegerField(blank=True, null=True)),
            ("seq", models.BigIntegerField(help_text="the lane's number that the edit took")),
            ("content", models.JSONField()),
            (
                "rule",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="versions", to="alerts.rule"
                ),
            ),
        ],
        options={
            "ordering": ["rule", "from_ms"],
            "constraints": [models.UniqueConstraint(fields=("rule", "from_ms"), name="one_version_per_step")],
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
                    on_delete=django.db.models.deletion.CASCADE, related_name="recording_rules", to="alerts.rulegroup"
                ),
            ),
        ],
        options={
            "ordering": ["group__file", "group__place", "place"],
        },
    ),
]
