"""The tables of alerts, of what judging remembers, and of reports on noise, for the migration that makes all tables of alerts at once."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import alerts.judging.instances.keys
import alerts.judging.reconciliation

TABLES = [
    migrations.CreateModel(
        name="Instance",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("fingerprint", models.CharField(blank=True, max_length=32)),
            (
                "aspect",
                models.CharField(
                    choices=[("value", "Value"), ("missing", "Missing"), ("error", "Error")], max_length=8
                ),
            ),
            ("labels", models.JSONField()),
            (
                "phase",
                models.CharField(
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
            ("since_ms", models.BigIntegerField(help_text="the step at which the phase began")),
            ("start_ms", models.BigIntegerField(blank=True, help_text="the first firing step", null=True)),
            ("active_ms", models.BigIntegerField(help_text="the step at which it left ok")),
            ("missing_ms", models.BigIntegerField(blank=True, help_text="the first step without data", null=True)),
            ("value", models.FloatField(help_text="at its last transition", null=True)),
            ("detail", models.TextField(blank=True, help_text="the text of an error")),
            (
                "rule",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="instances", to="alerts.rule"
                ),
            ),
        ],
        options={
            "ordering": ["phase", "-since_ms"],
            "constraints": [
                models.UniqueConstraint(fields=("rule", "fingerprint", "aspect"), name="one_row_per_instance")
            ],
        },
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
    migrations.CreateModel(
        name="Episode",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("fingerprint", models.CharField(max_length=32)),
            (
                "aspect",
                models.CharField(
                    choices=[("value", "Value"), ("missing", "Missing"), ("error", "Error")],
                    default=alerts.judging.instances.keys.Aspect["VALUE"],
                    max_length=8,
                ),
            ),
            ("labels", models.JSONField()),
            (
                "severity",
                models.CharField(
                    choices=[("info", "Info"), ("warning", "Warning"), ("critical", "Critical")],
                    help_text="of the rule when it began",
                    max_length=8,
                ),
            ),
            ("start_ms", models.BigIntegerField(help_text="the first step at which it fired")),
            (
                "end_ms",
                models.BigIntegerField(blank=True, help_text="the first step at which it no longer fired", null=True),
            ),
            (
                "status",
                models.CharField(
                    choices=[("open", "Open"), ("ended", "Ended"), ("void", "Void"), ("merged", "Merged")],
                    default=alerts.judging.reconciliation.EpisodeStatus["OPEN"],
                    max_length=8,
                ),
            ),
            (
                "end_reason",
                models.CharField(
                    blank=True,
                    choices=[
                        ("recovered", "Recovered"),
                        ("no data", "No Data"),
                        ("gone", "Gone"),
                        ("edited", "Edited"),
                        ("switched off", "Switched Off"),
                        ("deleted", "Deleted"),
                        ("person", "Person"),
                    ],
                    max_length=16,
                ),
            ),
            ("found_late", models.BooleanField(default=False, help_text="it was over when it was first judged")),
            ("revision", models.IntegerField(default=1)),
            ("start_value", models.FloatField(null=True)),
            ("last_value", models.FloatField(null=True)),
            ("created_ms", models.BigIntegerField()),
            ("changed_ms", models.BigIntegerField()),
            (
                "merged_into",
                models.ForeignKey(
                    blank=True,
                    null=True,
                    on_delete=django.db.models.deletion.SET_NULL,
                    related_name="merged_episodes",
                    to="alerts.episode",
                ),
            ),
            (
                "rule",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="episodes", to="alerts.rule"
                ),
            ),
        ],
        options={
            "ordering": ["-start_ms", "-id"],
            "indexes": [
                models.Index(fields=["rule", "-start_ms"], name="alerts_epis_rule_id_d87641_idx"),
                models.Index(fields=["status", "end_ms"], name="alerts_epis_status_ea56e6_idx"),
            ],
            "constraints": [
                models.UniqueConstraint(
                    condition=models.Q(("status", alerts.judging.reconciliation.EpisodeStatus["OPEN"])),
                    fields=("rule", "fingerprint", "aspect"),
                    name="one_open_episode",
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        models.Q(("end_ms", None), ("status", alerts.judging.reconciliation.EpisodeStatus["OPEN"])),
                        models.Q(
                            models.Q(("status", alerts.judging.reconciliation.EpisodeStatus["OPEN"]), _negated=True),
                            ("end_ms__isnull", False),
                        ),
                        _connector="OR",
                    ),
                    name="only_open_episodes_lack_an_end",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="AlertEvent",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("fingerprint", models.CharField(blank=True, max_length=32)),
            (
                "aspect",
                models.CharField(
                    choices=[("value", "Value"), ("missing", "Missing"), ("error", "Error")],
                    default=alerts.judging.instances.keys.Aspect["VALUE"],
                    max_length=8,
                ),
            ),
            ("labels", models.JSONField()),
            (
                "before",
                models.CharField(
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
            (
                "state",
                models.CharField(
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
            ("episode_ms", models.BigIntegerField()),
            ("at_ms", models.BigIntegerField()),
            ("value", models.FloatField(null=True)),
            ("reason", models.CharField(blank=True, max_length=200)),
            ("before_state", models.JSONField(null=True)),
            ("seq", models.BigIntegerField(default=0, help_text="the number of its operation")),
            (
                "superseded_seq",
                models.BigIntegerField(blank=True, help_text="the operation since which it does not hold", null=True),
            ),
            (
                "rule",
                models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="events", to="alerts.rule"),
            ),
        ],
        options={
            "ordering": ["-at_ms", "-id"],
            "indexes": [models.Index(fields=["rule", "-at_ms"], name="alerts_aler_rule_id_e3007c_idx")],
            "constraints": [
                models.UniqueConstraint(
                    condition=models.Q(("superseded_seq", None), models.Q(("seq", 0), _negated=True)),
                    fields=("rule", "fingerprint", "aspect", "at_ms"),
                    name="one_transition_per_step",
                )
            ],
        },
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
                models.IntegerField(help_text="alerts that began soon after the last one of their series had ended"),
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
            "constraints": [models.UniqueConstraint(fields=("organisation", "to_ms"), name="one_noise_report")],
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
    migrations.CreateModel(
        name="Outbox",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("kind", models.CharField(default="mail", max_length=16)),
            ("key", models.CharField(max_length=200, unique=True)),
            ("payload", models.JSONField()),
            (
                "state",
                models.CharField(
                    choices=[("waiting", "Waiting"), ("sent", "Sent"), ("dead", "Dead")],
                    default="waiting",
                    max_length=8,
                ),
            ),
            ("attempts", models.IntegerField(default=0)),
            ("created_ms", models.BigIntegerField()),
            ("next_attempt_ms", models.BigIntegerField()),
            ("sent_ms", models.BigIntegerField(blank=True, null=True)),
            ("error", models.TextField(blank=True)),
            ("claim", models.BigIntegerField(default=0)),
            ("claim_until_ms", models.BigIntegerField(default=0)),
            (
                "app",
                models.ForeignKey(
                    blank=True,
                    null=True,
                    on_delete=django.db.models.deletion.CASCADE,
                    related_name="+",
                    to="accounts.app",
                ),
            ),
        ],
        options={
            "verbose_name_plural": "outbox",
            "ordering": ["-created_ms", "-id"],
            "indexes": [
                models.Index(fields=["state", "next_attempt_ms"], name="alerts_outb_state_b2a0ed_idx"),
                models.Index(fields=["app", "-created_ms"], name="alerts_outb_app_id_3efe19_idx"),
            ],
        },
    ),
]
