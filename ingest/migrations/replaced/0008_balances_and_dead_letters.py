"""Proxies of an app get their new names, and so do their permissions; no table changes."""

from typing import Any

from django.db import migrations, models

_RENAMED = {"accountbook": "appbalance", "letterbox": "appdeadletters"}


def _rename_permissions(apps: Any, names: dict[str, str]) -> None:
    permission = apps.get_model("auth", "Permission")
    for old, new in names.items():
        for act in ("add", "change", "delete", "view"):
            rows = permission.objects.filter(content_type__app_label="ingest", codename=f"{act}_{old}")
            rows.update(codename=f"{act}_{new}")


def forwards(apps: Any, schema_editor: Any) -> None:
    """Keep what groups and users may do."""
    _rename_permissions(apps, _RENAMED)


def backwards(apps: Any, schema_editor: Any) -> None:
    """Restore the old names."""
    _rename_permissions(apps, {new: old for old, new in _RENAMED.items()})


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0006_source_period_before"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
        ("ingest", "0007_agent_twins"),
    ]

    operations = [
        migrations.RenameModel("AccountBook", "AppBalance"),
        migrations.RenameModel("LetterBox", "AppDeadLetters"),
        migrations.AlterModelOptions(
            "AppBalance", options={"verbose_name": "balance of an app", "verbose_name_plural": "balances"}
        ),
        migrations.RunPython(forwards, backwards),
        migrations.AlterField(
            "agent", "collectors", models.JSONField(default=dict, help_text="the state of each: ok, or its error")
        ),
        migrations.AlterField(
            "agent", "period_ms", models.PositiveIntegerField(help_text="between two rounds of its collectors")
        ),
        migrations.AlterField(
            "agent",
            "process_ms",
            models.BigIntegerField(help_text="its start by its own clock: tells processes apart", null=True),
        ),
        migrations.AlterField(
            "agent",
            "spool",
            models.CharField(blank=True, help_text="the spool that numbers its messages", max_length=12),
        ),
        migrations.AlterField("agent", "started", models.DateTimeField(help_text="when its process started")),
        migrations.AlterField(
            "arrival", "source", models.CharField(help_text="the source that came last", max_length=255)
        ),
        migrations.AlterField(
            "heartbeat",
            "last_act",
            models.CharField(blank=True, editable=False, help_text="what it reported then", max_length=10),
        ),
        migrations.AlterField(
            "heartbeat", "last_ms", models.BigIntegerField(editable=False, help_text="when it last reported", null=True)
        ),
        migrations.AlterField(
            "metricdescription",
            "type",
            models.CharField(help_text="Prometheus' type: counter, gauge, histogram, summary …", max_length=20),
        ),
        migrations.AlterField(
            "rejectedline", "example", models.CharField(blank=True, help_text="its first characters", max_length=120)
        ),
        migrations.AlterField("rejectedline", "time_ms", models.BigIntegerField(help_text="when it was rejected")),
        migrations.AlterField(
            "rejectedline",
            "way",
            models.CharField(blank=True, help_text="the protocol, or the program that speaks it", max_length=40),
        ),
    ]
