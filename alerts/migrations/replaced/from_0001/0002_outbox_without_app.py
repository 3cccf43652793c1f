import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0007_logins"),
        ("alerts", "0001_initial"),
    ]

    operations = [
        migrations.AlterField(
            model_name="outbox",
            name="app",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="+",
                to="accounts.app",
            ),
        ),
    ]
