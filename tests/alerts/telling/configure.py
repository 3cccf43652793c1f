"""Writes what people configure about telling, for tests."""

from typing import Any

from alerts.models.telling import Policy
from alerts.telling import actions, limits
from spm.accounts.models import App
from tests.alerts.conftest import START_MS


def policy(app: App, matchers: str, *targets: str, by: Any, **fields: Any) -> Policy:
    """A policy that leads to a contact point with these receivers."""
    name = f"point {Policy.objects.count()}"
    point = actions.add_contact_point(app.organisation, name, targets, by=by, now_ms=START_MS)
    waits = {"wait_ms": limits.GROUP_WAIT_MS, "interval_ms": limits.GROUP_INTERVAL_MS}
    return Policy.objects.create(
        organisation=app.organisation,
        matchers=matchers,
        contact_point=point,
        **{**waits, "repeat_ms": limits.GROUP_REPEAT_MS, "group_by": ["alertname"], **fields},
    )
