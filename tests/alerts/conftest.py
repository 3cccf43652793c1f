"""An app with a person of each role, a rule, and an engine whose values the test sets."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from django.contrib.auth.models import User

from alerts import evaluate, rulebook
from alerts.expressions import SeriesValue
from alerts.judging.answers import Answer, Read
from alerts.judging.versions import Steps
from alerts.models import Rule
from alerts.notify.registry import NOTIFIERS
from alerts.rulebook import Draft
from alerts.telling import flush, sender
from spm.accounts.models import App, Membership, Organisation, Role
from spm.clock import FakeClock
from spm.errors import BadQuery, SpmError

START_MS = 1_700_000_000_000
PERIOD_MS = 10_000


def draft(**changes: Any) -> Draft:
    """Return a rule on the CPU, changed as the test needs."""
    fields: dict[str, Any] = {
        "name": "CPU is busy",
        "expr": "cpu",
        "comparator": ">",
        "threshold": 90.0,
        "recovery": None,
        "for_ms": 0,
        "keep_firing_for_ms": 0,
        "severity": "warning",
        "receivers": ("ops@example.org",),
        "enabled": True,
    }
    return Draft(**{**fields, **changes})


@dataclass(slots=True)
class Machine:
    """Answers any expression with the values set here, by host."""

    values: dict[str, float] = field(default_factory=dict)
    queries: list[tuple[int, str, int]] = field(default_factory=list)
    error: SpmError | None = None

    def query(self, app: int, expr: str, at_ms: int) -> Sequence[SeriesValue]:
        self.queries.append((app, expr, at_ms))
        if self.error is not None:
            raise self.error
        return [SeriesValue({"__name__": "cpu", "host": host}, value) for host, value in self.values.items()]

    def open_session(self, app: int) -> Read:
        """Answer with the same values at all steps; an error is one of the world, or of the expression."""

        def read(expr: str, steps: Steps) -> Answer:
            try:
                series = self.query(app, expr, steps.last_ms)
            except BadQuery as refusal:
                return Answer.failed(steps, str(refusal))
            column = np.array([each.value for each in series], np.float64).reshape(-1, 1)
            values = np.repeat(column, len(steps), axis=1)
            return Answer([each.labels for each in series], values, np.ones(values.shape, np.bool_))

        return read


@dataclass(slots=True)
class AlertingWorld:
    """Rule evaluation with a fake engine and a fake clock."""

    machine: Machine
    clock: FakeClock

    def evaluate(self) -> evaluate.EvaluationCounts:
        observe = evaluate.at_present(self.machine.open_session, self.clock)
        return evaluate.evaluate_due_lanes(observe=observe, clock=self.clock)

    def evaluate_values(self, *values: float | None, host: str = "a") -> None:
        """Evaluate once per value, a period apart; None is no data."""
        for value in values:
            self.machine.values = {} if value is None else {host: value}
            self.evaluate()
            self.clock.advance(PERIOD_MS)

    def tell(self) -> int:
        """Write and deliver what is due now; returns how many notifications were delivered or refused."""
        flush.flush_due(self.clock.now_ms())
        counts = sender.deliver(notifiers=NOTIFIERS, clock=self.clock)
        return counts.sent + counts.failed


@pytest.fixture(autouse=True)
def asking_nobody(settings: Any) -> None:
    """Most tests are not about whether strangers want mail; those that are ask them."""
    settings.SPM_CONFIRM_RECEIVERS = False


@pytest.fixture
def people(db: None) -> dict[str, User]:
    return {name: User.objects.create_user(name, password="x") for name in ("olga", "edda", "vera", "mallory")}


@pytest.fixture
def app(people: dict[str, User]) -> App:
    organisation = Organisation.objects.create(name="Acme")
    for name, role in (("olga", Role.OWNER), ("edda", Role.EDITOR), ("vera", Role.VIEWER)):
        Membership.objects.create(organisation=organisation, user=people[name], role=role)
    return App.objects.create(organisation=organisation, name="Shop")


@pytest.fixture
def foreign_app(people: dict[str, User]) -> App:
    organisation = Organisation.objects.create(name="Evil")
    Membership.objects.create(organisation=organisation, user=people["mallory"], role=Role.OWNER)
    return App.objects.create(organisation=organisation, name="Lair")


@pytest.fixture
def world() -> AlertingWorld:
    return AlertingWorld(Machine(), FakeClock(START_MS))


@pytest.fixture
def make_rule(app: App, people: dict[str, User], world: AlertingWorld) -> Callable[..., Rule]:
    def make(**changes: Any) -> Rule:
        return rulebook.write(app, draft(**changes), by=people["edda"], now_ms=world.clock.now_ms())

    return make
