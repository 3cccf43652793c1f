"""When a password may be tried, from the tries before alone."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spm.accounts.logins import limits, rules
from spm.accounts.logins.rules import History, Scope

NOW = 1_700_000_000_000
MINUTE = 60_000
HOUR = 60 * MINUTE
KNOWN = NOW + 1


def guess(histories: dict[Scope, History], now_ms: int) -> bool:
    """Try a wrong password; returns whether the try was admitted."""
    decision = rules.decide(histories, now_ms)
    if decision.wait_ms:
        return False
    for scope in decision.counted:
        histories[scope] = rules.count(histories.get(scope, rules.NOTHING), now_ms)
    return True


def admitted(histories: dict[Scope, History], times: Sequence[int]) -> int:
    """How many of the wrong passwords tried at these times were admitted."""
    return sum(guess(histories, now_ms) for now_ms in times)


@pytest.mark.parametrize(
    ("failures", "free", "pause_ms"),
    [(0, 5, 0), (4, 5, 0), (5, 5, 2_000), (6, 5, 4_000), (13, 5, 512_000), (14, 5, 900_000), (10_000, 5, 900_000)],
)
def test_a_pause_follows_the_free_tries_and_doubles_up_to_a_quarter_of_an_hour(
    failures: int, free: int, pause_ms: int
) -> None:
    assert rules.pause_ms(failures, free) == pause_ms


@pytest.mark.parametrize(
    ("history", "wait_ms"),
    [
        pytest.param(History(), 0, id="never tried"),
        pytest.param(History(4, NOW), 0, id="a free try is left"),
        pytest.param(History(5, NOW), 2_000, id="the last free try has just been used"),
        pytest.param(History(5, NOW - 500), 1_500, id="a part of the pause is over"),
        pytest.param(History(5, NOW - 2_000), 0, id="the pause is over"),
        pytest.param(History(50, NOW - 14 * MINUTE), MINUTE, id="the longest pause"),
        pytest.param(History(50, NOW - 24 * HOUR), 0, id="forgotten after a day"),
        pytest.param(History(50, NOW + 30_000), 15 * MINUTE + 30_000, id="another machine's clock is a bit ahead"),
        pytest.param(History(50, NOW + 24 * HOUR), 0, id="the clock was wrong when the row was written"),
    ],
)
def test_a_try_waits_for_what_is_left_of_the_pause(history: History, wait_ms: int) -> None:
    assert rules.pause_left_ms(history, 5, NOW) == wait_ms


ATTACKED = {
    Scope.PAIR: History(50, NOW),
    Scope.NETWORK: History(50, NOW),
    Scope.ACCOUNT: History(500, NOW),
}


@pytest.mark.parametrize(
    ("histories", "blocked_by"),
    [
        pytest.param({}, None, id="nobody has tried"),
        pytest.param({Scope.PAIR: History(5, NOW)}, Scope.PAIR, id="this account from here"),
        pytest.param({Scope.NETWORK: History(30, NOW)}, Scope.NETWORK, id="many accounts from here"),
        pytest.param({Scope.ACCOUNT: History(20, NOW)}, Scope.ACCOUNT, id="this account from many networks"),
        pytest.param({**ATTACKED, Scope.DEVICE: History(9, NOW, KNOWN)}, None, id="its own device during an attack"),
        pytest.param({**ATTACKED, Scope.DEVICE: History(9, NOW, NOW)}, Scope.PAIR, id="a device that was forgotten"),
        pytest.param({**ATTACKED, Scope.PAIR: History(9, NOW, KNOWN)}, None, id="its own network during an attack"),
        pytest.param({Scope.DEVICE: History(10, NOW, KNOWN)}, Scope.DEVICE, id="a stolen device"),
        pytest.param({Scope.PAIR: History(10, NOW, KNOWN)}, Scope.PAIR, id="a guesser in the owner's office"),
        pytest.param(
            {Scope.DEVICE: History(0, 0, KNOWN), Scope.PAIR: History(10, NOW, KNOWN)},
            None,
            id="the owner's device in an office with a guesser",
        ),
    ],
)
def test_the_first_scope_without_tries_decides(histories: Mapping[Scope, History], blocked_by: Scope | None) -> None:
    decision = rules.decide(histories, NOW)
    assert (decision.blocked_by if decision.wait_ms else None) == blocked_by


times = st.lists(st.integers(0, 3 * HOUR), max_size=400).map(lambda offsets: [NOW + each for each in sorted(offsets)])


@given(times)
def test_no_rhythm_of_tries_gets_more_than_the_free_ones_and_those_after_pauses(times: list[int]) -> None:
    histories: dict[Scope, History] = {}
    count = admitted(histories, times)
    pauses = [rules.pause_ms(failures, limits.LOGIN_PAIR_FREE) for failures in range(count)]
    assert sum(pauses) <= 3 * HOUR
    assert count <= 5 + 10 + 3 * HOUR // limits.LOGIN_PAUSE_MAX_MS


def test_a_day_of_guessing_without_rest_gives_a_hundred_guesses() -> None:
    day = range(NOW, NOW + 24 * HOUR, 1_000)
    assert 96 <= admitted({}, day) <= 110


def test_a_day_of_guessing_by_a_thousand_networks_gives_little_more() -> None:
    account, count = rules.NOTHING, 0
    for now_ms in range(NOW, NOW + 24 * HOUR, 1_000):  # a network of its own for each try
        histories = {Scope.ACCOUNT: account}
        count += guess(histories, now_ms)
        account = histories[Scope.ACCOUNT]
    assert 96 <= count <= 130


@given(st.integers(1, 30))
def test_patience_gains_nothing(per_hour: int) -> None:
    times = [NOW + hour * HOUR + each for hour in range(24 * 7) for each in range(per_hour)]
    assert admitted({}, times) <= 7 * 110


@given(times)
def test_a_try_that_must_wait_prolongs_no_pause(times: list[int]) -> None:
    histories: dict[Scope, History] = {Scope.PAIR: History(9, NOW)}
    end = NOW + rules.pause_ms(9, limits.LOGIN_PAIR_FREE)
    for now_ms in [each for each in times if each < end]:
        assert not guess(histories, now_ms)
    assert guess(histories, end)


histories = st.builds(History, st.integers(0, 40), st.integers(NOW - 30 * HOUR, NOW))
histories_of_strangers = st.fixed_dictionaries(
    {Scope.PAIR: histories, Scope.NETWORK: histories, Scope.ACCOUNT: histories}
)


@given(histories_of_strangers, st.integers(0, 9))
def test_strangers_change_nothing_for_a_known_device(strangers: dict[Scope, History], failures: int) -> None:
    device = {Scope.DEVICE: History(failures, NOW, KNOWN)}
    assert rules.decide({**strangers, **device}, NOW) == rules.decide(device, NOW)


@given(histories_of_strangers, st.integers(0, 12 * HOUR))
def test_a_history_that_has_expired_decides_as_none_does(strangers: dict[Scope, History], later: int) -> None:
    alive = {scope: each for scope, each in strangers.items() if rules.expires_ms(each) >= NOW + later}
    assert rules.decide(alive, NOW + later).wait_ms == rules.decide(strangers, NOW + later).wait_ms
