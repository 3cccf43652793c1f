"""One organisation, fresh caches and a clock that moves when told."""

from collections.abc import Iterator

import pytest

from spm.accounts.models import App
from spm.clock import FakeClock
from tests.frontend.conftest import House, house
from tests.support import process_state


@pytest.fixture(autouse=True)
def fresh_caches() -> Iterator[None]:
    """What a process remembers does not outlive a test."""
    process_state.forget_tokens()
    process_state.forget_sources()
    yield
    process_state.forget_tokens()
    process_state.forget_sources()


@pytest.fixture
def alpha(db: None) -> House:
    """An organisation."""
    return house("alpha")


@pytest.fixture
def app(alpha: House) -> App:
    """Its app."""
    return alpha.app


@pytest.fixture
def clock() -> FakeClock:
    """Stands still."""
    return FakeClock()
