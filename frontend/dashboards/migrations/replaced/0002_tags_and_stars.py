"""Tags beside the title, so that a list needs no documents, and stars of people."""

from typing import Any

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


def take_tags(apps: Any, schema_editor: Any) -> None:
    """Copy the tags of the newest documents; few are held at once."""
    versions = apps.get_model("dashboards", "DashboardVersion").objects.using(schema_editor.connection.alias)
    newest = versions.filter(number=models.F("dashboard__version")).select_related("dashboard")
    for version in newest.iterator(chunk_size=10):
        tags = version.document.get("tags", [])
        if tags:
            version.dashboard.tags = tags
            version.dashboard.save(update_fields=["tags"])


class Migration(migrations.Migration):
    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("dashboards", "0001_dashboards"),
    ]

    operations = [
        migrations.AddField(model_name="dashboard", name="tags", field=models.JSONField(default=list)),
        migrations.CreateModel(
            name="Star",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "dashboard",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="stars", to="dashboards.dashboard"
                    ),
                ),
                (
                    "person",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("person", "dashboard"), name="star_once")],
            },
        ),
        migrations.RunPython(take_tags, migrations.RunPython.noop),
    ]
