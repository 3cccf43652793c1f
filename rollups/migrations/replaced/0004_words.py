"""Days of a run are published (the column keeps its name), and apps have a placement."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("rollups", "0003_spreading"),
    ]

    operations = [
        migrations.AlterField("runday", "flipped", models.BooleanField(db_column="flipped")),
        migrations.RenameField("runday", "flipped", "published"),
        migrations.AlterModelOptions(
            name="spreading",
            options={"verbose_name": "placement of an app", "verbose_name_plural": "placements"},
        ),
    ]
