"""Migrations of dashboards keep what was there."""

from typing import Any

import pytest
from django.db import connection

from frontend.dashboards import storage
from frontend.dashboards.models import Dashboard
from tests.frontend.dashboards.documents import document
from tests.spm.accounts.older_database import older_executor
from tests.support.people import Tenant

pytestmark = pytest.mark.django_db


def test_tags_of_older_dashboards_are_those_of_their_newest_documents(alpha: Tenant) -> None:
    """What the migration runs, on rows as it finds them."""
    by = storage.Author(alpha.owner, 1)
    tagged = storage.create(alpha.app, document(title="A", tags=["old"]), by)
    storage.save(tagged, document(title="A", tags=["new"]), by, base=1)
    plain = storage.create(alpha.app, document(title="B"), by)
    Dashboard.objects.update(tags=[])
    migration: Any = older_executor().loader.get_migration("dashboards", "0002_tags_and_stars")
    apps = older_executor().loader.project_state([("dashboards", "0002_tags_and_stars")]).apps
    migration.operations[-1].code(apps, type("Editor", (), {"connection": connection}))
    tagged.refresh_from_db()
    plain.refresh_from_db()
    assert (tagged.tags, plain.tags) == (["new"], [])
