"""Names the scope events in the help of a token's scopes; no column changes."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0011_tokens_and_audit")]
    operations = [
        migrations.AlterField(
            "token",
            "scopes",
            models.CharField(help_text="ingest, read, events, write, admin; separated by spaces", max_length=40),
        ),
    ]
