"""Removes what lanes and instances replace. On its own, because PostgreSQL alters no table that has pending changes."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("alerts", "0005_lanes")]

    operations = [
        migrations.DeleteModel(name="Alert"),
        migrations.RemoveIndex(model_name="rule", name="alerts_rule_enabled_523f44_idx"),
        migrations.RemoveField(model_name="rule", name="claim"),
        migrations.RemoveField(model_name="rule", name="claim_until_ms"),
        migrations.RemoveField(model_name="rule", name="error"),
        migrations.RemoveField(model_name="rule", name="evaluated_ms"),
    ]
