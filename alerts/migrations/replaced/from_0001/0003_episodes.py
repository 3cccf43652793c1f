import django.db.models.deletion
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps


def open_episodes(apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    """Give each firing series the episode that its table did not have."""
    alerts, episodes = apps.get_model("alerts", "Alert"), apps.get_model("alerts", "Episode")
    firing = alerts.objects.filter(state="firing").select_related("rule").iterator(chunk_size=1_000)
    episodes.objects.bulk_create(
        (
            episodes(
                rule=alert.rule,
                fingerprint=alert.fingerprint,
                labels=alert.labels,
                severity=alert.rule.severity,
                start_ms=alert.since_ms,
                start_value=alert.value,
                last_value=alert.value,
                created_ms=alert.since_ms,
                changed_ms=alert.since_ms,
            )
            for alert in firing
        ),
        batch_size=1_000,
    )


class Migration(migrations.Migration):
    dependencies = [
        ("alerts", "0002_outbox_without_app"),
    ]

    operations = [
        migrations.CreateModel(
            name="Episode",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("fingerprint", models.CharField(max_length=32)),
                (
                    "aspect",
                    models.CharField(
                        choices=[("value", "Value"), ("missing", "Missing"), ("error", "Error")],
                        default="value",
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
                    models.BigIntegerField(
                        blank=True, help_text="the first step at which it no longer fired", null=True
                    ),
                ),
                (
                    "status",
                    models.CharField(
                        choices=[("open", "Open"), ("ended", "Ended"), ("void", "Void"), ("merged", "Merged")],
                        default="open",
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
                        condition=models.Q(("status", "open")),
                        fields=("rule", "fingerprint", "aspect"),
                        name="one_open_episode",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("end_ms", None), ("status", "open")),
                            models.Q(models.Q(("status", "open"), _negated=True), ("end_ms__isnull", False)),
                            _connector="OR",
                        ),
                        name="only_open_episodes_lack_an_end",
                    ),
                ],
            },
        ),
        migrations.RunPython(open_episodes, migrations.RunPython.noop),
    ]
