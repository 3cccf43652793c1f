"""Adds the budgets of organisations for notifications: each is full until its first one."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0012_events_scope"),
        ("alerts", "0015_escalation"),
    ]

    operations = [
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
    ]
