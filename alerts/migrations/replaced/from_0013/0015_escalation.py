"""Adds escalation: steps of policies, and the time before which a receiver does not hear of an episode."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("alerts", "0014_knowledge_of_operations"),
    ]

    operations = [
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
    ]
