"""The chart of a mail is read once, of the right series and span, and a mail goes out without one if that fails."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from alerts.judging.versions import Steps
from alerts.models import Rule
from alerts.models.telling import Notification
from alerts.notify.base import DeliveryFailed
from alerts.notify.chart import ChartData, draw
from alerts.notify.registry import NOTIFIERS
from alerts.telling import charts, flush, limits, sender
from spm.errors import StoreUnavailable
from tests.alerts.conftest import START_MS, AlertingWorld
from tests.alerts.notify.bodies import body, line

HOUR_MS = 3_600_000


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str, Mapping[str, str], Steps]]:
    """What was read; each answer is a value at every other step."""
    reads: list[tuple[int, str, Mapping[str, str], Steps]] = []

    def read_points(app: int, expr: str, labels: Mapping[str, str], steps: Steps, known: object) -> list[float | None]:
        reads.append((app, expr, labels, steps))
        return [1.0 if n % 2 else None for n in range(len(steps))]

    monkeypatch.setattr(charts, "read_points", read_points)
    return reads


@pytest.mark.parametrize("lasts_ms", [0, 7_000, HOUR_MS, 30 * 24 * HOUR_MS])
def test_a_chart_goes_from_an_hour_before_the_alert_to_now_or_is_its_last_day(read: list[Any], lasts_ms: int) -> None:
    chart = charts.read_chart(body(at_ms=START_MS + lasts_ms))
    [(app, expr, labels, steps)] = read
    assert (app, expr, labels) == (3, "cpu", {"__name__": "cpu", "host": "web-1"})
    assert len(steps) <= limits.CHART_POINTS + 1
    assert steps.period_ms % limits.CHART_STEP_MS == 0
    assert steps.last_ms % steps.period_ms == 0
    assert 0 <= START_MS + lasts_ms - steps.last_ms < steps.period_ms
    expected_ms = min(HOUR_MS + lasts_ms, limits.CHART_SPAN_MS_MAX)
    assert abs(steps.last_ms - steps.first_ms - expected_ms) <= 2 * steps.period_ms
    assert chart["threshold"] == 90.0
    assert draw(ChartData(**chart))


def test_a_test_an_error_and_a_series_without_data_have_no_chart(
    read: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert charts.read_chart(body(line(rule=0))) == {}
    assert charts.read_chart(body(line(aspect="error"))) == {}
    assert read == []
    monkeypatch.setattr(charts, "read_points", lambda app, expr, labels, steps, known: [None] * len(steps))
    assert charts.read_chart(body()) == {}


def test_without_the_store_a_mail_has_no_chart(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> list[float | None]:
        raise StoreUnavailable("away")

    monkeypatch.setattr(charts, "read_points", fail)
    assert charts.read_chart(body()) == {}


@pytest.fixture
def due(make_rule: Callable[..., Rule], world: AlertingWorld) -> AlertingWorld:
    """A notification is written and waits."""
    make_rule()
    world.evaluate_values(95)
    world.clock.advance(limits.GROUP_WAIT_MS)
    flush.flush_due(world.clock.now_ms())
    return world


@pytest.mark.django_db
def test_a_retry_has_the_chart_of_the_first_attempt(due: AlertingWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    answers = [DeliveryFailed("451 later"), None]

    class Notifier:
        has_chart = True

        def send(self, key: str, payload: Mapping[str, Any]) -> str:
            seen.append(payload["chart"])
            if (failure := answers.pop(0)) is not None:
                raise failure
            return "taken"

    charts_read = iter([{"values": [1.0]}, {"values": [2.0]}])
    for _ in range(2):
        notifiers: Any = {"mail": Notifier()}
        sender.deliver(notifiers=notifiers, clock=due.clock, read_chart=lambda body: next(charts_read))
        due.clock.advance(limits.PAUSE_MAX_MS)
    assert seen == [{"values": [1.0]}, {"values": [1.0]}]
    assert Notification.objects.get().state == "sent"


@pytest.mark.django_db
def test_a_mail_goes_out_though_its_chart_fails(due: AlertingWorld, mailoutbox: list[Any]) -> None:
    def fail(body: Mapping[str, Any]) -> Mapping[str, Any]:
        raise RuntimeError("a mistake of ours")

    sender.deliver(notifiers=NOTIFIERS, clock=due.clock, read_chart=fail)
    assert len(mailoutbox) == 1
    assert Notification.objects.get().chart == {}
