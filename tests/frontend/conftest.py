"""People and apps of two organisations that must not see each other, and a store of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.test import Client

from ingest.accept.process_acceptor import close_process_acceptor
from spm import query
from spm.store.backends import open_backend
from tests.support import process_state
from tests.support.people import Tenant, make_tenant


@pytest.fixture
def alpha(db: None) -> Tenant:
    """The organisation of most tests."""
    return make_tenant("alpha")


@pytest.fixture
def beta(db: None) -> Tenant:
    """Another organisation."""
    return make_tenant("beta")


@pytest.fixture
def desk(client: Client, alpha: Tenant) -> Client:
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
    process_state.forget_periods()
    yield
    process_state.forget_tokens()
    query.configure("memory://")
    close_process_acceptor()  # its last announcement goes to this test's store
    open_backend(settings.SPM_STORE_URL).close()  # type: ignore[attr-defined]  # each maps a terabyte of addresses
