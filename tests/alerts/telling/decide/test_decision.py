"""Which line a receiver gets of an episode: one table of circumstances, and properties of covers."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.telling import limits
from alerts.telling.decide.covers import Cover, is_exposed
from alerts.telling.decide.decision import Circumstances, decide
from alerts.telling.decide.episodes import LastWord, Level, LineKind
from tests.alerts.telling.decide.builders import HOUR, MINUTE, T0, episode

NEW, TOLD_OPEN = LastWord(), LastWord(Level.OPEN)
NOW = Circumstances(now_ms=T0 + MINUTE, judged_ms=T0 + MINUTE - 5_000)
ALWAYS = Cover(0, None, "silenced by #1")
OVER = episode(end_ms=T0 + 30_000)

CASES = {
    "a new alert": (NEW, episode(), NOW, LineKind.FIRING),
    "one that was over before anybody heard of it": (NEW, OVER, NOW, LineKind.BRIEF),
    "one found when late data came": (NEW, replace(OVER, found_late=True), NOW, LineKind.LATE),
    "one that ended long ago": (NEW, OVER, replace(NOW, now_ms=T0 + HOUR, judged_ms=T0 + HOUR), LineKind.LATE),
    "one without a route": (NEW, episode(), replace(NOW, is_routed=False), None),
    "a part of another that nobody heard of": (NEW, replace(OVER, merged=True), NOW, None),
    "a part of another that was told": (TOLD_OPEN, replace(OVER, merged=True), NOW, LineKind.RESOLVED),
    "a silenced one": (NEW, episode(), replace(NOW, mutes=[ALWAYS]), None),
    "one whose silence is over": (NEW, episode(), replace(NOW, mutes=[Cover(0, T0 + 20_000, "#1")]), LineKind.FIRING),
    "one that was over in its silence": (NEW, OVER, replace(NOW, mutes=[Cover(0, T0 + 40_000, "#1")]), None),
    "one that outlived its silence and ended": (
        NEW,
        OVER,
        replace(NOW, mutes=[Cover(0, T0 + 20_000, "#1")]),
        LineKind.BRIEF,
    ),
    "one that was kept from being told until windows are forgotten": (
        NEW,
        OVER,
        replace(NOW, now_ms=OVER.created_ms + limits.WINDOWS_SPAN_MS + HOUR),
        None,
    ),
    "one of so long ago that is known since today": (
        NEW,
        replace(OVER, created_ms=T0 + limits.WINDOWS_SPAN_MS, found_late=True),
        replace(NOW, now_ms=T0 + limits.WINDOWS_SPAN_MS + HOUR),
        LineKind.LATE,
    ),
    "the end of one told before, under a silence": (TOLD_OPEN, OVER, replace(NOW, mutes=[ALWAYS]), LineKind.RESOLVED),
    "the end of one told before, without a route": (TOLD_OPEN, OVER, replace(NOW, is_routed=False), LineKind.RESOLVED),
    "one that an open alert inhibits": (NEW, episode(), replace(NOW, inhibitors=[ALWAYS]), None),
    "one whose inhibitor recovered a moment ago": (
        NEW,
        episode(),
        replace(NOW, inhibitors=[Cover(0, NOW.judged_ms + 10_000, "x")]),
        None,
    ),
    "one judged while catching up": (
        NEW,
        episode(created_ms=T0 + 9 * MINUTE),
        Circumstances(now_ms=T0 + 10 * MINUTE, judged_ms=T0),
        None,
    ),
    "one held back for as long as can be": (
        NEW,
        episode(),
        Circumstances(now_ms=T0 + limits.CATCH_UP_HOLD_MS, judged_ms=T0),
        LineKind.FIRING,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_each_circumstance_has_its_line(case: tuple[LastWord, object, Circumstances, LineKind | None]) -> None:
    last, about_episode, circumstances, line = case
    decision = decide(last, about_episode, circumstances)  # type: ignore[arg-type]
    assert (decision.kind, bool(decision.reason)) == (line, True)


def test_a_decision_says_when_it_may_change_by_itself() -> None:
    silence = Cover(0, T0 + HOUR, "silenced by #7")
    decision = decide(NEW, episode(), replace(NOW, mutes=[silence]))
    assert (decision.reason, decision.until_ms) == ("silenced by #7", T0 + HOUR)


@pytest.mark.parametrize("cover", ["mutes", "inhibitors"])
def test_what_is_over_and_covered_changes_with_an_event_alone(cover: str) -> None:
    about: Circumstances = replace(NOW, **{cover: [Cover(0, T0 + 40_000, "x")]})  # type: ignore[arg-type]
    assert decide(NEW, OVER, about).until_ms is None
    assert decide(NEW, episode(), replace(about, judged_ms=T0 + 30_000)).until_ms is not None


covers_of = st.lists(
    st.tuples(st.integers(-3, 30), st.none() | st.integers(0, 12)).map(
        lambda pair: Cover(pair[0], None if pair[1] is None else pair[0] + pair[1], "x")
    ),
    max_size=5,
)


@given(covers_of, st.integers(0, 20), st.integers(1, 15), st.sampled_from([1, 3, 5]))
def test_an_episode_is_exposed_exactly_if_a_step_of_it_is_uncovered(
    covers: list[Cover], start: int, length: int, period: int
) -> None:
    steps = range(start, start + length, period)
    expected = any(not any(cover.holds(step) for cover in covers) for step in steps)
    assert is_exposed(covers, start_ms=start, end_ms=start + length, period_ms=period) is expected
