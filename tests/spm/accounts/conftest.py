"""One organisation, fresh caches and a clock that tests move."""

from collections.abc import Iterator

import pytest

from spm.accounts.models import App
from spm.clock import FakeClock
from tests.support import process_state
from tests.support.people import Tenant, make_tenant


@pytest.fixture(autouse=True)
def fresh_caches() -> Iterator[None]:
    """What a process remembers does not outlive a test."""
    process_state.forget_tokens()
    yield
    process_state.forget_tokens()


@pytest.fixture
def alpha(db: None) -> Tenant:
    """An organisation."""
    return make_tenant("alpha")


@pytest.fixture
def app(alpha: Tenant) -> App:
    """Its app."""
    return alpha.app


@pytest.fixture
def clock() -> FakeClock:
    """A clock that stands still."""
    return FakeClock()
