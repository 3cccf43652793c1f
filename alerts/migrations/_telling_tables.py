"""The tables of receivers and of what they are told, for the migration that makes all tables of alerts at once."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

TABLES = [
    migrations.CreateModel(
        name="TellingClock",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("seen_ms", models.BigIntegerField()),
        ],
    ),
    migrations.CreateModel(
        name="MuteTiming",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("name", models.CharField(max_length=120)),
            ("matchers", models.TextField()),
            ("cron", models.CharField(max_length=120)),
            ("zone", models.CharField(default="UTC", max_length=64)),
            ("duration_ms", models.BigIntegerField()),
            (
                "organisation",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.organisation"
                ),
            ),
        ],
        options={
            "ordering": ["name", "id"],
        },
    ),
    migrations.CreateModel(
        name="Inhibition",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("source", models.TextField()),
            ("target", models.TextField()),
            ("equal", models.JSONField(default=list)),
            (
                "organisation",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.organisation"
                ),
            ),
        ],
    ),
    migrations.CreateModel(
        name="Silence",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("matchers", models.TextField()),
            ("from_ms", models.BigIntegerField()),
            ("to_ms", models.BigIntegerField()),
            ("comment", models.CharField(blank=True, max_length=200)),
            ("created_ms", models.BigIntegerField()),
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
                "organisation",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.organisation"
                ),
            ),
        ],
        options={
            "ordering": ["-to_ms", "-id"],
            "indexes": [models.Index(fields=["organisation", "to_ms"], name="alerts_sile_organis_552da4_idx")],
        },
    ),
    migrations.CreateModel(
        name="Receiver",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("kind", models.CharField(max_length=16)),
            ("target", models.CharField(max_length=500)),
            ("created_ms", models.BigIntegerField()),
            ("tokens", models.FloatField()),
            ("tokens_ms", models.BigIntegerField(default=0, help_text="when it had so many tokens")),
            ("digests", models.BigIntegerField(default=0, help_text="number of its last digest")),
            ("dead_in_a_row", models.IntegerField(default=0, help_text="notifications since one was delivered")),
            (
                "confirmed_ms",
                models.BigIntegerField(help_text="since when it gets notifications; null: it does not", null=True),
            ),
            (
                "is_member",
                models.BooleanField(default=True, help_text="it was the address of a member when it was written"),
            ),
            (
                "refresh_from_ms",
                models.BigIntegerField(default=0, help_text="from then on an Alertmanager is sent again what goes on"),
            ),
            (
                "organisation",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.organisation"
                ),
            ),
        ],
        options={
            "ordering": ["kind", "target"],
            "constraints": [models.UniqueConstraint(fields=("organisation", "kind", "target"), name="one_receiver")],
        },
    ),
    migrations.CreateModel(
        name="ContactPoint",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("name", models.CharField(max_length=120)),
            (
                "wants_report",
                models.BooleanField(default=False, help_text="its mail addresses get the weekly noise report"),
            ),
            (
                "organisation",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.organisation"
                ),
            ),
            ("receivers", models.ManyToManyField(related_name="contact_points", to="alerts.receiver")),
        ],
        options={
            "ordering": ["name"],
            "constraints": [models.UniqueConstraint(fields=("organisation", "name"), name="one_contact_point")],
        },
    ),
    migrations.CreateModel(
        name="Policy",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("position", models.IntegerField(default=0)),
            ("matchers", models.TextField()),
            ("group_by", models.JSONField(default=list)),
            ("wait_ms", models.BigIntegerField()),
            ("interval_ms", models.BigIntegerField()),
            ("repeat_ms", models.BigIntegerField()),
            ("goes_on", models.BooleanField(default=False, help_text="policies after this one may take the alert too")),
            (
                "contact_point",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="policies", to="alerts.contactpoint"
                ),
            ),
            (
                "organisation",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.organisation"
                ),
            ),
            (
                "parent",
                models.ForeignKey(
                    blank=True,
                    null=True,
                    on_delete=django.db.models.deletion.CASCADE,
                    related_name="children",
                    to="alerts.policy",
                ),
            ),
        ],
        options={
            "verbose_name_plural": "policies",
            "ordering": ["position", "id"],
        },
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
        name="Notification",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("key", models.CharField(max_length=80, unique=True)),
            ("body", models.JSONField()),
            ("chart", models.JSONField(help_text="the points of its chart, read once", null=True)),
            ("texts", models.JSONField(help_text="annotations that rest on data, by episode, read once", null=True)),
            ("levels", models.JSONField()),
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
            ("is_doubtful", models.BooleanField(default=False)),
            ("answer", models.TextField(blank=True)),
            ("took_ms", models.IntegerField(default=0, help_text="the last attempt")),
            ("claim", models.BigIntegerField(default=0)),
            ("claim_until_ms", models.BigIntegerField(default=0)),
            (
                "organisation",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.organisation"
                ),
            ),
            (
                "receiver",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="notifications", to="alerts.receiver"
                ),
            ),
        ],
        options={
            "ordering": ["-created_ms", "-id"],
            "indexes": [
                models.Index(fields=["state", "next_attempt_ms"], name="alerts_noti_state_647106_idx"),
                models.Index(fields=["organisation", "-created_ms"], name="alerts_noti_organis_07954f_idx"),
            ],
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
    migrations.CreateModel(
        name="NotificationGroup",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("key", models.CharField(max_length=32)),
            ("labels", models.JSONField()),
            ("n", models.BigIntegerField(default=0)),
            (
                "first_key",
                models.CharField(blank=True, help_text="of its first notification: the thread", max_length=80),
            ),
            ("last_flush_ms", models.BigIntegerField(null=True)),
            ("blocked_until_ms", models.BigIntegerField(default=0)),
            ("next_look_ms", models.BigIntegerField(db_index=True, null=True)),
            (
                "open",
                models.ForeignKey(
                    null=True,
                    on_delete=django.db.models.deletion.SET_NULL,
                    related_name="groups",
                    to="alerts.notification",
                ),
            ),
            (
                "policy",
                models.ForeignKey(
                    null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to="alerts.policy"
                ),
            ),
            (
                "receiver",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="groups", to="alerts.receiver"
                ),
            ),
        ],
        options={
            "constraints": [models.UniqueConstraint(fields=("receiver", "key"), name="one_notification_group")],
        },
    ),
    migrations.CreateModel(
        name="LastWord",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("level", models.CharField(default="nothing", max_length=8)),
            ("is_doubtful", models.BooleanField(default=False)),
            ("reason", models.CharField(blank=True, max_length=200)),
            ("not_before_ms", models.BigIntegerField(default=0, help_text="by escalation; 0: at once")),
            ("sent_ms", models.BigIntegerField(default=0, help_text="when an Alertmanager was last sent it")),
            (
                "episode",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="last_words", to="alerts.episode"
                ),
            ),
            (
                "group",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE,
                    related_name="last_words",
                    to="alerts.notificationgroup",
                ),
            ),
            (
                "receiver",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="last_words", to="alerts.receiver"
                ),
            ),
        ],
        options={
            "constraints": [models.UniqueConstraint(fields=("receiver", "episode"), name="one_last_word")],
        },
    ),
    migrations.CreateModel(
        name="Acknowledgement",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("at_ms", models.BigIntegerField()),
            ("first_ms", models.BigIntegerField(default=0, help_text="when it was taken for the first time")),
            ("until_ms", models.BigIntegerField()),
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
                "episode",
                models.OneToOneField(
                    on_delete=django.db.models.deletion.CASCADE, related_name="acknowledgement", to="alerts.episode"
                ),
            ),
            (
                "receiver",
                models.ForeignKey(
                    help_text="by its link",
                    null=True,
                    on_delete=django.db.models.deletion.SET_NULL,
                    related_name="+",
                    to="alerts.receiver",
                ),
            ),
        ],
    ),
]
