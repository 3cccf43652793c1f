import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0006_source_period_before"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="LoginBudget",
            fields=[
                ("key", models.CharField(max_length=32, primary_key=True, serialize=False)),
                ("account", models.CharField(blank=True, db_index=True, max_length=32)),
                ("failures", models.PositiveIntegerField(default=0)),
                ("last_ms", models.BigIntegerField(default=0)),
                ("known_until_ms", models.BigIntegerField(default=0)),
                (
                    "noticed_ms",
                    models.BigIntegerField(default=0, help_text="of an account: when its owner was last written to"),
                ),
                ("expires_ms", models.BigIntegerField(db_index=True, default=0)),
            ],
        ),
        migrations.CreateModel(
            name="LoginNotice",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("address", models.CharField(max_length=64)),
                ("device", models.CharField(max_length=32)),
                ("at_ms", models.BigIntegerField()),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
        ),
    ]
