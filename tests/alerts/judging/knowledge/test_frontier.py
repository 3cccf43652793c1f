"""The frontier: what a judge may take for known, by no clock but its own; each rule is needed by a history."""

from collections.abc import Mapping

import pytest

from alerts.judging.knowledge.frontier import AcceptorSight, Frontier, median_now

Sights = Mapping[int, AcceptorSight]


def sight(number: int, announced: int = 0, settled: int = 0, **more: bool) -> AcceptorSight:
    return AcceptorSight(number, 0, announced=(announced, 0), settled=(settled, 0), **more)


LOOKS: dict[str, tuple[list[tuple[int, Sights]], int]] = {
    "nobody accepts anything": ([(10, {})], 10),
    "one round later may have begun before": ([(10, {1: sight(5)}), (12, {1: sight(6)})], 0),
    "two rounds later began after": ([(10, {1: sight(5)}), (12, {1: sight(6)}), (14, {1: sight(7)})], 10),
    "of two processes one is slow": ([(10, {1: sight(5), 2: sight(5)}), (14, {1: sight(7), 2: sight(6)})], 0),
    "what was announced is not settled": ([(10, {1: sight(5)}), (14, {1: sight(7, 9, 8)})], 0),
    "it is settled later, and newer messages do not count": (
        [(10, {1: sight(5)}), (14, {1: sight(7, 9, 8)}), (16, {1: sight(8, 20, 9)})],
        10,
    ),
    "an app could not be announced in that round": (
        [(10, {1: sight(5)}), (14, {1: sight(7, is_announced=False)})],
        0,
    ),
    "a process that was silent is waited for": ([(10_000, {1: sight(5)}), (29_000, {1: sight(5)})], 0),
    "one that is silent for 20 s counts as gone": ([(10_000, {1: sight(5)}), (30_000, {1: sight(5)})], 30_000),
    "a gone one must have come to its last announcement": (
        [(10_000, {1: sight(5, 9, 8)}), (30_000, {1: sight(5, 9, 8)})],
        0,
    ),
    "unless that is too old to settle ever": (
        [(10_000, {1: sight(5, 9, 8)}), (30_000, {1: sight(5, 9, 8, is_hopeless=True)})],
        30_000,
    ),
    "one that ended is settled at once": ([(10, {1: sight(5, 9, 9, has_ended=True)})], 10),
    "one that begins after a look had accepted nothing by then": (
        [(10, {1: sight(5)}), (14, {1: sight(7), 2: sight(0)})],
        10,
    ),
}


@pytest.mark.parametrize(("looks", "expected"), LOOKS.values(), ids=LOOKS.keys())
def test_a_frontier_waits_for_what_it_must(looks: list[tuple[int, Sights]], expected: int) -> None:
    frontier = Frontier()
    assert [frontier.look(at_ms, acceptors) for at_ms, acceptors in looks][-1] == expected


def test_a_frontier_that_stands_for_long_remembers_its_oldest_probe() -> None:
    frontier = Frontier()
    for at_ms in range(1_000, 200_000, 1_000):
        assert frontier.look(at_ms, {1: sight(at_ms, 99, 50)}) == 0
    assert frontier.look(200_000, {1: sight(200_000, 99, 99)}) > 0


@pytest.mark.parametrize(
    ("judge", "acceptors", "sources", "expected"),
    [
        (100, [101, 99], [98, 102], 99),
        (9_000, [101, 99], [98, 102], 99),
        (100, [9_000, 9_001], [98, 102], 100),
        (100, [101, 99], [9_000], 100),
        (9_000, [100], [], 100),
        (100, [], [9_000], 100),
    ],
    ids=["all agree", "the judge", "acceptors", "sources", "no sources", "no acceptors"],
)
def test_one_family_of_clocks_may_be_wrong(judge: int, acceptors: list[int], sources: list[int], expected: int) -> None:
    assert median_now(judge, acceptors, sources) == expected
