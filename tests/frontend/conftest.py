"""People and apps of two organisations that must not see each other, and a store of their own."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client

from ingest.accept.process_acceptor import close_process_acceptor
from spm import query
from spm.accounts import tokens
from spm.accounts.models import App, Membership, Organisation, Role
from spm.store.backends import open_backend
from tests.support import process_state


@dataclass(frozen=True, slots=True)
class House:
    """One organisation with one app and one person of each role that tests need."""

    organisation: Organisation
    app: App
    owner: User
    viewer: User
    token: str  # scope read


def house(name: str) -> House:
    """Create an organisation with people and an app."""
    organisation = Organisation.objects.create(name=name)
    people = {}
    for role in (Role.OWNER, Role.VIEWER):
        people[role] = User.objects.create_user(f"{role}@{name}.example", password="correct horse")
        Membership.objects.create(organisation=organisation, user=people[role], role=role)
    app = App.objects.create(organisation=organisation, name=f"{name} production")
    _, secret = tokens.issue(app, name="reader", scopes=["read"])
    return House(organisation, app, people[Role.OWNER], people[Role.VIEWER], secret)


@pytest.fixture
def alpha(db: None) -> House:
    """The organisation of most tests."""
    return house("alpha")


@pytest.fixture
def beta(db: None) -> House:
    """Another organisation."""
    return house("beta")


@pytest.fixture
def desk(client: Client, alpha: House) -> Client:
    """A browser in which alpha's owner is logged in."""
    client.force_login(alpha.owner)
    return client


@pytest.fixture(autouse=True)
def own_store(settings: object, tmp_path: Path) -> Iterator[None]:
    """A store for each test; caches of processes start empty."""
    settings.SPM_STORE_URL = f"lmdb://{tmp_path}/store"  # type: ignore[attr-defined]  # pytest-django's own wrapper
    settings.SPM_DATA = tmp_path  # type: ignore[attr-defined]
    query.configure(settings.SPM_STORE_URL)  # type: ignore[attr-defined]
    process_state.forget_tokens()
    process_state.forget_sources()
    yield
    process_state.forget_tokens()
    process_state.forget_sources()
    query.configure("memory://")
    close_process_acceptor()  # its last announcement goes to this test's store
    open_backend(settings.SPM_STORE_URL).close()  # type: ignore[attr-defined]  # each maps a terabyte of addresses
