"""Bounds of settings hold when two people write at once."""

import contextlib
import threading
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from alerts.models.telling import ContactPoint
from alerts.telling import actions, hook, limits
from spm.accounts.models import App
from spm.errors import LimitExceeded
from tests.alerts.conftest import START_MS


@pytest.mark.django_db(transaction=True)
def test_two_contact_points_at_once_do_not_pass_the_bound(
    app: App, people: dict[str, User], monkeypatch: pytest.MonkeyPatch
) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time: run it with --database")
    monkeypatch.setattr(limits, "CONTACT_POINTS_MAX", 1)
    both, write, refused = threading.Barrier(2), hook.write_receivers, list[str]()

    def write_together(*arguments: Any, **named: Any) -> None:
        """Wait for the other one, which comes only if nothing keeps it out."""
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(1)
        write(*arguments, **named)

    def add(name: str) -> None:
        try:
            target = (f"{name}@example.org",)
            actions.add_contact_point(app.organisation, name, target, by=people["olga"], now_ms=START_MS)
        except LimitExceeded:
            refused.append(name)
        finally:
            connection.close()

    monkeypatch.setattr(actions, "write_receivers", write_together)
    threads = [threading.Thread(target=add, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (ContactPoint.objects.count(), len(refused)) == (1, 1)
