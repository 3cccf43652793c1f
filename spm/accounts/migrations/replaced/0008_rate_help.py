import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0007_logins"),
    ]

    operations = [
        migrations.AlterField(
            model_name="app",
            name="rate_max",
            field=models.PositiveBigIntegerField(
                blank=True,
                help_text="on average; empty: the site's (SPM_APP_RATE_MAX)",
                null=True,
                validators=[django.core.validators.MinValueValidator(1)],
                verbose_name="samples a second at most",
            ),
        ),
    ]
