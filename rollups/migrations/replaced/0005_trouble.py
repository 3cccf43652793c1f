"""What cannot be done for an app, or for one of its days, is recorded there and does not stop other apps."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("rollups", "0004_words"),
    ]

    operations = [
        migrations.CreateModel(
            name="Trouble",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "act",
                    models.CharField(
                        help_text="what was tried: run, consider, widen, expire, purge or delete", max_length=20
                    ),
                ),
                ("day", models.DateField(blank=True, help_text="none: the whole app", null=True)),
                ("reason", models.TextField()),
                ("since", models.DateTimeField(help_text="when it was tried in vain for the first time")),
                ("at", models.DateTimeField(help_text="when it was tried in vain for the last time")),
                (
                    "app",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="troubles", to="accounts.app"
                    ),
                ),
            ],
            options={"ordering": ["app", "day"]},
        ),
    ]
