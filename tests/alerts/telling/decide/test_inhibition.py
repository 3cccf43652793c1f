"""Which alerts keep which others from being told, and that none of them can do so in a ring."""

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.telling import limits
from alerts.telling.decide.episodes import EpisodeView, Level
from alerts.telling.decide.inhibition import Inhibition, inhibitors
from tests.alerts.telling.decide.builders import T0, episode, matchers

DOWN = episode(id=1, severity=2, labels={"alertname": "HostDown"})
BUSY = episode(id=2, labels={"alertname": "CPU"})
RULE = Inhibition(1, matchers('alertname="HostDown"'), matchers('alertname="CPU"'), ("host",))
ANY = Inhibition(2, matchers('host=~".+"'), matchers('host=~".+"'), ())


def sources_of(target: EpisodeView, *others: EpisodeView, rule: Inhibition = RULE) -> list[str]:
    return [cover.reason for cover in inhibitors([rule], [target], [target, *others]).get(target.id, [])]


def test_a_worse_alert_of_the_same_host_inhibits() -> None:
    assert sources_of(BUSY, DOWN) == ["inhibited by HostDown #1"]


@pytest.mark.parametrize(
    "source",
    [
        replace(DOWN, labels={"alertname": "HostDown", "host": "b"}),
        replace(DOWN, level=Level.VOID),
        replace(DOWN, merged=True),
        replace(DOWN, severity=1, start_ms=T0 + 1),
    ],
    ids=["of another host", "one that never was", "a part of another", "one that is later in the order"],
)
def test_another_alert_does_not_inhibit(source: EpisodeView) -> None:
    assert sources_of(BUSY, source) == []


def test_inhibition_lasts_a_moment_beyond_its_source() -> None:
    source = replace(DOWN, end_ms=T0 + 60_000, level=Level.ENDED)
    [cover] = inhibitors([RULE], [BUSY], [source])[BUSY.id]
    assert cover.to_ms == T0 + 60_000 + limits.INHIBITION_LINGER_MS


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=2, max_size=5))
def test_of_alerts_that_all_inhibit_each_other_one_is_free(ranks: list[tuple[int, int]]) -> None:
    alerts = [episode(id=n, severity=severity, start_ms=T0 + start) for n, (severity, start) in enumerate(ranks)]
    inhibited = inhibitors([ANY], alerts, alerts)
    assert len(set(range(len(alerts))) - set(inhibited)) == 1
    for one, other in permutations(alerts, 2):
        assert (one.rank < other.rank) is not (other.rank < one.rank)
