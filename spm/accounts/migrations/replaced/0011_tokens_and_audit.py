"""Tokens have an end and an author; entries of the audit log have the address from which a person acted."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0010_people"), migrations.swappable_dependency(settings.AUTH_USER_MODEL)]
    operations = [
        migrations.AddField(
            "auditentry",
            "address",
            models.CharField(
                blank=True, db_default="", default="", help_text="from where a person did it", max_length=45
            ),
        ),
        migrations.AddIndex("auditentry", models.Index(fields=["organisation", "-id"], name="audit_of_organisation")),
        migrations.AddField(
            "token",
            "created_by",
            models.ForeignKey(
                blank=True,
                editable=False,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            "token",
            "expires",
            models.DateTimeField(blank=True, editable=False, help_text="from when on it is refused", null=True),
        ),
    ]
