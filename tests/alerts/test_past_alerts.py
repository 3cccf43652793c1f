"""Past alerts that depend on given samples."""

import pytest

from alerts import past_alerts, rulebook
from alerts.models import Episode, Rule
from spm.accounts.models import App, Organisation
from tests.alerts.conftest import START_MS, draft

MINUTE = 60_000


@pytest.mark.parametrize(
    ("expr", "reach"),
    [
        ("cpu", 5 * MINUTE),
        ("avg_over_time(cpu[10m])", 10 * MINUTE),
        ("rate(cpu[1m] offset 1h)", 61 * MINUTE),
        ("mem / on (host) cpu", 5 * MINUTE),
        ("max by (host) (max_over_time(mem[1h])) + sum(cpu)", 5 * MINUTE),
        ('{__name__=~"c.u"}', 5 * MINUTE),
        ('{host="a"}', 5 * MINUTE),
        ("mem", None),
        ('{__name__=~"cp"}', None),
        ("time() > 5", None),
        ("no such (", None),
    ],
)
def test_an_expression_reads_a_metric_as_far_back_as_its_window(expr: str, reach: int | None) -> None:
    assert past_alerts.reach_ms(expr, ["cpu"]) == reach


def test_no_metric_concerns_no_rule() -> None:
    assert past_alerts.reach_ms('{host="a"}', []) is None


@pytest.fixture
def rule(db: None) -> Rule:
    """A rule on the CPU that waits a minute before it fires."""
    app = App.objects.create(organisation=Organisation.objects.create(name="ACME"), name="shop")
    return rulebook.write(app, draft(for_ms=MINUTE), by=None, now_ms=START_MS)


@pytest.mark.parametrize(
    ("at_ms", "status", "counts"),
    [
        (START_MS, "ended", True),
        (START_MS + 6 * MINUTE, "ended", True),
        (START_MS + 6 * MINUTE + 1, "ended", False),
        (START_MS - 1, "ended", False),
        (START_MS, "void", False),
        (START_MS, "merged", False),
    ],
)
def test_alerts_count_while_their_rule_could_see_the_samples(rule: Rule, at_ms: int, status: str, counts: bool) -> None:
    times = {"start_ms": at_ms, "end_ms": at_ms + MINUTE, "created_ms": at_ms, "changed_ms": at_ms}
    Episode.objects.create(rule=rule, fingerprint="x", labels={}, severity="info", status=status, **times)
    assert past_alerts.count_fired(rule.app_id, ["cpu"], START_MS, START_MS) == counts
    assert past_alerts.count_fired(rule.app_id, ["mem"], START_MS, START_MS) == 0
    assert past_alerts.count_fired(rule.app_id + 1, ["cpu"], START_MS, START_MS) == 0
