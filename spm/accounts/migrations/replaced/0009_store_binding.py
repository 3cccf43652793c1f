from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0008_rate_help"),
    ]

    operations = [
        migrations.CreateModel(
            name="StoreBinding",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("identity", models.BinaryField(max_length=16)),
                ("is_confirmed", models.BooleanField(default=False, editable=False)),
            ],
        ),
    ]
