"""Apps by the buckets they lie in: a proxy, for its permissions."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0002_retention"),
        ("rollups", "0002_corrections"),
    ]

    operations = [
        migrations.CreateModel(
            name="Spreading",
            fields=[],
            options={
                "verbose_name": "distribution of an app",
                "verbose_name_plural": "distributions",
                "proxy": True,
                "indexes": [],
                "constraints": [],
            },
            bases=("accounts.app",),
        ),
    ]
