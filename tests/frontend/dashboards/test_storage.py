"""Versions of a dashboard: saved, merged by panel, restored, forgotten, deleted."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontend.dashboards import storage
from frontend.dashboards.document import Document, PanelSpec, from_dict
from frontend.dashboards.models import Dashboard, DashboardVersion
from frontend.pages.organisation.export import file_of
from spm.accounts.models import App, AuditEntry
from spm.clock import moment
from spm.errors import LimitExceeded, Refused
from tests.frontend.dashboards.documents import document
from tests.support.people import Tenant

BASE = document({"title": "CPU"}, {"title": "Memory", "y": 8})


def with_panel(base: Document, number: int, **fields: Any) -> Document:
    return replace(base, panels=[replace(each, **fields) if each.number == number else each for each in base.panels])


def without(base: Document, number: int) -> Document:
    return replace(base, panels=[each for each in base.panels if each.number != number])


def added(base: Document, number: int, title: str) -> Document:
    return replace(base, panels=[*base.panels, PanelSpec(number, title=title)])


@pytest.mark.parametrize(
    ("mine", "theirs", "merged"),
    [
        (with_panel(BASE, 1, x=3), with_panel(BASE, 2, x=4), with_panel(with_panel(BASE, 1, x=3), 2, x=4)),
        (with_panel(BASE, 1, x=3), with_panel(BASE, 1, x=3), with_panel(BASE, 1, x=3)),
        (without(BASE, 1), with_panel(BASE, 2, x=4), with_panel(without(BASE, 1), 2, x=4)),
        (added(BASE, 3, "Disk"), added(BASE, 4, "Net"), added(added(BASE, 3, "Disk"), 4, "Net")),
        (replace(BASE, title="Mine"), with_panel(BASE, 2, x=4), with_panel(replace(BASE, title="Mine"), 2, x=4)),
    ],
    ids=["other panels", "equal changes", "one deleted, other moved", "two new ones", "title and panel"],
)
def test_changes_of_different_things_are_joined(mine: Document, theirs: Document, merged: Document) -> None:
    assert storage.merge(BASE, mine, theirs) == (merged, [])


@pytest.mark.parametrize(
    ("mine", "theirs", "place"),
    [
        (with_panel(BASE, 1, x=3), with_panel(BASE, 1, x=4), "panel “CPU”"),
        (without(BASE, 1), with_panel(BASE, 1, x=4), "panel “CPU”"),
        (added(BASE, 3, "Disk"), added(BASE, 3, "Net"), "panel “Disk”"),
        (replace(BASE, title="A"), replace(BASE, title="B"), "the title"),
    ],
    ids=["panel", "deleted and changed", "new panels of one number", "title"],
)
def test_different_changes_of_one_thing_are_a_conflict(mine: Document, theirs: Document, place: str) -> None:
    assert storage.merge(BASE, mine, theirs)[1] == [place]
    assert len(storage.merge(BASE, theirs, mine)[1]) == 1


CHANGES = st.builds(
    lambda places, title: Document(title, panels=[PanelSpec(number, x=x) for number, x in places.items()]),
    st.dictionaries(st.integers(1, 4), st.integers(0, 2), max_size=4),
    st.sampled_from(["A", "B"]),
)


@given(CHANGES, CHANGES, CHANGES)
def test_a_merge_keeps_each_change_and_does_not_depend_on_who_was_first(
    before: Document, mine: Document, theirs: Document
) -> None:
    merged, places = storage.merge(before, mine, theirs)
    swapped, others = storage.merge(before, theirs, mine)
    assert len(places) == len(others)
    if not places:
        assert {each.number: each for each in merged.panels} == {each.number: each for each in swapped.panels}
    assert storage.merge(before, mine, before) == (mine, [])
    assert storage.merge(before, before, mine)[0].title == mine.title
    for number in range(1, 5):
        if before.panel(number) == theirs.panel(number):
            assert merged.panel(number) == mine.panel(number)


@pytest.fixture
def by(alpha: Tenant) -> storage.Author:
    return storage.Author(alpha.owner, 1_000)


@pytest.fixture
def dashboard(alpha: Tenant, by: storage.Author) -> Dashboard:
    return storage.create(alpha.app, BASE, by)


def test_every_save_is_a_version_and_is_in_the_audit_log(dashboard: Dashboard, by: storage.Author) -> None:
    storage.save(dashboard, replace(BASE, title="Other"), replace(by, note="why"), base=1)
    assert list(dashboard.versions.values_list("number", "note")) == [(2, "why"), (1, "")]
    assert dashboard.title == "Other"
    assert storage.document_of(dashboard).title == "Other"
    noted = AuditEntry.objects.filter(action__startswith="dashboard.").order_by("pk").values_list("action", flat=True)
    assert list(noted) == ["dashboard.created", "dashboard.saved"]


def test_a_save_from_an_older_version_keeps_what_others_changed(dashboard: Dashboard, by: storage.Author) -> None:
    storage.save(dashboard, with_panel(BASE, 1, x=3), by, base=1)
    saved = storage.save(dashboard, with_panel(BASE, 2, x=4), by, base=1)
    assert [each.x for each in saved.panels] == [3, 4]
    assert storage.document_of(dashboard) == saved


def test_a_conflict_saves_nothing_and_names_who_was_faster(dashboard: Dashboard, by: storage.Author) -> None:
    storage.save(dashboard, with_panel(BASE, 1, x=3), by, base=1)
    with pytest.raises(storage.Conflict, match=r"owner@alpha\.example .*CPU"):
        storage.save(dashboard, with_panel(BASE, 1, x=4), by, base=1)
    assert dashboard.versions.count() == 2


def test_a_newer_version_than_was_seen_is_not_deleted(dashboard: Dashboard, by: storage.Author) -> None:
    storage.save(dashboard, with_panel(BASE, 1, x=3), by, base=1)
    with pytest.raises(storage.Conflict, match="all of it"):
        storage.delete(dashboard, by, base=1)
    storage.delete(dashboard, by, base=2)
    assert not Dashboard.objects.exists()


def test_what_is_deleted_in_the_meantime_is_neither_saved_nor_deleted_again(
    dashboard: Dashboard, by: storage.Author
) -> None:
    storage.delete(Dashboard.objects.get(), by)
    for act in (lambda: storage.save(dashboard, BASE, by, base=1), lambda: storage.delete(dashboard, by)):
        with pytest.raises(Refused, match="deleted in the meantime"):
            act()


def test_a_save_from_a_version_that_is_gone_is_a_conflict(
    dashboard: Dashboard, by: storage.Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "VERSIONS_KEPT_MAX", 1)
    storage.save(dashboard, with_panel(BASE, 1, x=3), by, base=1)
    assert [each.number for each in dashboard.versions.all()] == [2]
    with pytest.raises(storage.Conflict, match="all of it"):
        storage.save(dashboard, with_panel(BASE, 2, x=4), by, base=1)


def test_the_oldest_versions_go_at_the_bound_of_bytes(
    dashboard: Dashboard, by: storage.Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = DashboardVersion.objects.get().size_bytes
    monkeypatch.setattr(storage, "VERSIONS_BYTES_MAX", 2 * size + 20)
    for x in (1, 2, 3):
        storage.save(dashboard, with_panel(BASE, 1, x=x), by, base=x)
    assert [each.number for each in dashboard.versions.all()] == [4, 3]
    monkeypatch.setattr(storage, "VERSIONS_BYTES_MAX", 1)
    storage.save(dashboard, BASE, by, base=4)
    assert [each.number for each in dashboard.versions.all()] == [5]


def test_a_restored_version_is_a_new_one(dashboard: Dashboard, by: storage.Author) -> None:
    storage.save(dashboard, with_panel(BASE, 1, x=3), by, base=1)
    storage.restore(dashboard, 1, by)
    assert dashboard.version == 3
    assert storage.document_of(dashboard) == BASE
    with pytest.raises(Refused, match="no such version"):
        storage.restore(dashboard, 9, by)


def test_more_than_a_bound_is_not_saved(
    dashboard: Dashboard, alpha: Tenant, by: storage.Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "DASHBOARDS_PER_APP_MAX", 1)
    with pytest.raises(LimitExceeded, match="too many dashboards"):
        storage.create(alpha.app, BASE, by)
    monkeypatch.setattr(storage, "DOCUMENT_BYTES_MAX", 100)
    with pytest.raises(LimitExceeded, match="too large"):
        storage.save(dashboard, BASE, by, base=1)
    assert DashboardVersion.objects.count() == 1


def test_an_app_that_is_being_deleted_gets_no_dashboard(alpha: Tenant, by: storage.Author) -> None:
    App.objects.filter(pk=alpha.app.pk).update(going=moment(by.now_ms))
    with pytest.raises(Refused, match="deleted in the meantime"):
        storage.create(alpha.app, BASE, by)


def test_the_end_of_a_dashboard_or_of_its_app_leaves_no_version(
    dashboard: Dashboard, alpha: Tenant, by: storage.Author
) -> None:
    storage.delete(dashboard, by)
    assert DashboardVersion.objects.count() == 0
    storage.create(alpha.app, BASE, by)
    alpha.app.delete()
    assert (Dashboard.objects.count(), DashboardVersion.objects.count()) == (0, 0)


def in_file(tenant: Tenant) -> list[dict[str, Any]]:
    """The dashboards in the file of an organisation's export."""
    exported: list[dict[str, Any]] = orjson.loads(b"".join(file_of(tenant.organisation)))["dashboards"]
    return exported


def test_a_piece_of_the_export_has_one_document(alpha: Tenant, by: storage.Author) -> None:
    for _ in range(25):
        storage.create(alpha.app, BASE, by)
    assert len(in_file(alpha)) == 25
    assert max(piece.count(b'"uid"') for piece in file_of(alpha.organisation)) == 1


def test_the_export_of_an_organisation_has_its_dashboards_and_no_others(
    dashboard: Dashboard, alpha: Tenant, beta: Tenant
) -> None:
    (exported,) = in_file(alpha)
    assert exported["uid"] == dashboard.uid
    assert from_dict(exported["document"]) == BASE
    assert in_file(beta) == []
