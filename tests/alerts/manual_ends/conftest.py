"""What the tests of these pages share: people who have logged in."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client


@pytest.fixture
def login(people: dict[str, User]) -> Callable[[str], Client]:
    """A client in which a person of this name has logged in."""

    def logged_in(name: str) -> Client:
        client = Client()
        client.force_login(people[name])
        return client

    return logged_in
