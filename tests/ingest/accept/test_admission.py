"""What an app may send: rate, series, times. The others never feel it, and neither do the series an app has."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.accept import store_pause
from ingest.accept.admission import Admission
from ingest.accept.rate_allowance import RateAllowance, RateAllowances, TooFast
from ingest.accept.series_quota import SeriesQuota
from ingest.accept.stamper import Stamper
from ingest.accept.store_pause import STORE_PAUSE_S, StorePause
from ingest.protocols.common import times
from ingest.protocols.influx import reader as influx_reader
from ingest.writer import Writer
from spm import limits
from spm.accounts.quotas import Quota
from spm.clock import FakeClock
from spm.errors import StoreUnavailable
from spm.store import keys
from spm.store.backends.base import Backend
from spm.store.backends.memory import MemoryBackend
from spm.store.keys import PlacementTable
from spm.store.ledger import quota
from spm.wire import Parsed, SeriesTable, canonical, parse_canonical
from tests.support.faults import Faulty

NOW_MS = 1_700_000_000_000
APP, OTHER = 7, 8


class World:
    """A store, and admissions of several processes over it."""

    def __init__(self, **allowed: int | None) -> None:
        self.store, self.clock, self.allowed = MemoryBackend(), FakeClock(NOW_MS), Quota(**allowed)  # type: ignore[arg-type]
        self.writer, self.stamps = Writer(self.store, PlacementTable()), Stamper(1, self.clock)

    def admission(self, store: Backend | None = None) -> Admission:
        return Admission(store or self.store, self.clock, lambda app: self.allowed)

    def write(self, parsed: Parsed, app: int = APP) -> None:
        envelope = self.stamps.stamp_message(app=app, source="s", parsed=parsed, message_id=bytes(16))
        self.writer.write([envelope])


def message(*names: str, ts: int = NOW_MS) -> Parsed:
    table = SeriesTable.from_canonical([canonical("m", {"host": name}) for name in names])
    count = len(names)
    return Parsed(
        table, np.arange(count, dtype=np.int32), np.full(count, ts, np.int64), np.arange(count, dtype=np.float64)
    )


def hosts(parsed: Parsed) -> list[str]:
    forms = [parse_canonical(parsed.series.canonical(int(i))) for i in parsed.series_index]
    return [labels["host"] for _, labels in forms]


# --- series -----------------------------------------------------------------------------------------------------------


def test_new_series_over_the_quota_are_refused_by_name_and_old_ones_flow_on() -> None:
    world = World(series=2)
    admission = world.admission()
    world.write(admission.admit(APP, message("a", "b")))
    parsed = admission.admit(APP, message("a", "c", "b", "d"))
    assert (hosts(parsed), parsed.values.tolist(), parsed.rejected) == (["a", "b"], [0.0, 2.0], 2)
    assert len(parsed.series) == 2
    assert [r.example for r in parsed.rejections] == ['m{host="c"}', 'm{host="d"}']
    assert "quota of 2 series" in parsed.rejections[0].reason


def test_quota_holds_for_each_app_alone() -> None:
    admission = World(series=1).admission()
    assert hosts(admission.admit(APP, message("a", "b"))) == ["a"]
    assert hosts(admission.admit(OTHER, message("b"))) == ["b"]
    assert (admission.is_over_quota(APP), admission.is_over_quota(OTHER)) == (True, False)


def test_series_of_the_dictionary_are_no_new_ones_to_a_process_that_has_just_started() -> None:
    world = World(series=3)
    world.write(world.admission().admit(APP, message("a", "b", "c")))
    fresh = world.admission()
    assert hosts(fresh.admit(APP, message("c", "d", "a"))) == ["c", "a"]


def test_processes_share_the_quota() -> None:
    world = World(series=1_000)
    first, second = world.admission(), world.admission()
    admitted_counts = [
        len(admission.admit(APP, message(*(f"{p}{n}" for n in range(800)))).ts)
        for p, admission in enumerate((first, second))
    ]
    assert 1_000 - limits.QUOTA_SERIES_PORTION <= sum(admitted_counts) <= 1_000


def test_raised_quota_lets_refused_series_in_soon() -> None:
    world = World(series=1)
    admission = world.admission()
    assert hosts(admission.admit(APP, message("a", "b"))) == ["a"]
    world.allowed = Quota(series=2)
    world.clock.advance(limits.QUOTA_REFUSED_S * 1_000)
    assert hosts(admission.admit(APP, message("a", "b"))) == ["a", "b"]


def test_rights_that_a_dead_process_took_come_back_with_the_next_count() -> None:
    world = World(series=100)
    world.write(message("a"))
    assert quota.take_series(world.store, APP, wanted=99, quota=100, now_ms=NOW_MS) == 99
    admission = world.admission()
    assert hosts(admission.admit(APP, message("b"))) == []
    world.clock.advance(limits.QUOTA_RECOUNT_MS)
    assert hosts(admission.admit(APP, message("b"))) == ["b"]


def test_app_that_was_there_before_quotas_is_counted_once() -> None:
    world = World(series=3)
    world.write(message("a", "b"))
    assert hosts(world.admission().admit(APP, message("a", "b", "c", "d"))) == ["a", "b", "c"]
    assert quota.series_of(world.store, APP) == 3


def test_known_series_cost_the_store_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    admission = world.admission()
    admission.admit(APP, message("a", "b"))
    monkeypatch.delattr(MemoryBackend, "get")
    admission.admit(APP, message("a", "b"))
    admission.admit(APP, message("b", "a"))


def test_store_that_is_away_refuses_nobody_here() -> None:
    class Gone:
        def get(self, *_: object, **__: object) -> None:
            raise StoreUnavailable("gone")

    admission = World(series=0).admission(Gone())  # type: ignore[arg-type]
    assert hosts(admission.admit(APP, message("a"))) == ["a"]
    admission.check_rate(APP)


def test_a_store_that_is_away_is_asked_by_one_body_in_ten_seconds() -> None:
    world = World(samples_per_s=10, series=5)
    store = Faulty(world.store, fails_at=0)
    admission = world.admission(store)
    for second in range(2 * STORE_PAUSE_S):
        for body in range(20):
            admission.check_rate(APP)
            admission.check_rate(OTHER)
            admission.admit(APP, message(f"{second}.{body}"))
        world.clock.advance(1_000)
    assert len(store.calls) == 2
    store.fails_at = None
    for body in range(20):
        with suppress(TooFast):
            admission.check_rate(APP)
        rejected = admission.admit(APP, message(f"back {body}")).rejected
    assert rejected, "the quota holds again once the store answers"


class Hanging(MemoryBackend):
    """A store whose calls do not return until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.release, self.calls = threading.Event(), 0

    def get(self, *given: Any, **named: Any) -> list[dict[bytes, bytes] | None]:
        self.calls += 1
        self.release.wait(60)
        return super().get(*given, **named)


@pytest.mark.timed
def test_a_store_that_hangs_holds_the_first_body_for_a_second_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_pause, "STORE_WAIT_S", 0.2)
    first: list[Callable[[Admission], object]] = [lambda at: at.check_rate(APP), lambda at: at.admit(APP, message("a"))]
    for ask in first:
        store = Hanging()
        admission = World(samples_per_s=10).admission(store)
        start = time.monotonic()
        ask(admission)
        assert 0.2 <= time.monotonic() - start < 1.5
        for body in range(50):
            admission.check_rate(OTHER)
            assert hosts(admission.admit(APP, message(f"b{body}"))) == [f"b{body}"]
        assert (store.calls, time.monotonic() - start < 2) == (1, True)
        store.release.set()


def test_an_error_of_the_store_reaches_the_caller_and_helping_threads_are_used_again() -> None:
    pause, names = StorePause(World().clock), set[str]()

    def fail() -> None:
        names.add(threading.current_thread().name + str(threading.get_ident()))
        raise StoreUnavailable("gone")

    for _ in range(20):
        with pytest.raises(StoreUnavailable, match="gone"):
            pause.ask(fail)
        time.sleep(0.002)
    assert len(names) <= 3


def test_attack_leaves_old_series_and_other_apps_and_the_common_cache_alone() -> None:
    world = World(series=1_000)
    admission = world.admission()
    old = message(*(f"old{n}" for n in range(500)))
    world.write(admission.admit(APP, old))
    for wave in range(10):
        attack = message(*(f"{wave}.{n}" for n in range(2_000)))
        world.write(admission.admit(APP, attack))
        assert len(admission.admit(APP, old).ts) == 500
        assert admission.admit(OTHER, message(f"o{wave}")).rejected == 0
    stored = sum(1 for _ in world.store.scan("series", b"", b"\xff" * 40))
    assert stored <= 1_000 + 10
    assert admission.is_over_quota(APP)


def test_over_quota_apps_do_not_push_names_out_of_the_common_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    common = influx_reader.COMMON_CACHE.generation()
    before = common.form_bytes
    influx_reader.parse(b"attack,n=1 v=1\nattack,n=2 v=1", now_ms=NOW_MS, over_quota=True)
    assert common.form_bytes == before


# --- many messages together -------------------------------------------------------------------------------------------

some_messages = st.lists(
    st.tuples(
        st.sampled_from([APP, OTHER]),
        st.lists(st.sampled_from("abcdefgh"), max_size=5, unique=True),
        st.sampled_from([NOW_MS, NOW_MS - 40 * 86_400_000, NOW_MS // 1_000, 5]),
        st.sampled_from(["ms", "us", "ns"]),
    ),
    max_size=8,
)


def described(result: Parsed | Exception) -> object:
    if isinstance(result, Exception):
        return str(result)
    return hosts(result), result.ts.tolist(), result.values.tolist(), result.rejected, result.rejections


@settings(max_examples=150, deadline=None)
@given(st.lists(some_messages, max_size=4), st.integers(0, 8), st.sampled_from([None, 30]), st.booleans())
def test_messages_together_are_admitted_as_one_after_the_other(
    batches: list[list[tuple[int, list[str], int, str]]], series: int, kept_days: int | None, starts_anew: bool
) -> None:
    together, apart = World(series=series, kept_days=kept_days), World(series=series, kept_days=kept_days)
    joint, single = together.admission(), apart.admission()
    for batch in batches:
        messages = [(app, message(*names, ts=ts), unit) for app, names, ts, unit in batch]
        expected = [described(single.admit(app, parsed, unit)) for app, parsed, unit in messages]
        admitted = joint.admit_many(messages)
        assert [described(result) for result in admitted] == expected
        if starts_anew:  # so that the dictionary knows some series that the process does not
            for (app, _, _), parsed in zip(messages, admitted, strict=True):
                assert isinstance(parsed, Parsed)
                together.write(parsed, app)
                apart.write(parsed, app)
            joint, single = together.admission(), apart.admission()
    counted = [quota.series_of(world.store, APP) for world in (together, apart)]
    assert counted[0] == counted[1]


def test_messages_together_charge_the_rate_of_their_app() -> None:
    admission = World(samples_per_s=100).admission()
    admission.check_rate(APP)
    admission.admit_many([(APP, message(*map(str, range(60))), "ms")] * 20)  # twelve seconds of its rate
    with pytest.raises(TooFast):
        admission.check_rate(APP)
    admission.check_rate(OTHER)


def test_error_of_one_app_leaves_the_messages_of_others_alone() -> None:
    def quota_of(app: int) -> Quota:
        if app == APP:
            raise RuntimeError("ours")
        return Quota()

    world = World()
    admission = Admission(world.store, world.clock, quota_of)
    failed, admitted = admission.admit_many([(APP, message("a"), "ms"), (OTHER, message("a"), "ms")])
    assert (str(failed), described(admitted)) == ("ours", described(message("a")))


def test_error_amid_messages_takes_no_right_to_a_series_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    world, take_series = World(series=3), quota.take_series

    def take(store: Backend, app: int, *, wanted: int, quota: int, now_ms: int) -> int:
        if app == OTHER:
            raise RuntimeError("ours")
        return take_series(store, app, wanted=wanted, quota=quota, now_ms=now_ms)

    monkeypatch.setattr(quota, "take_series", take)
    first, failed = world.admission().admit_many([(APP, message("a", "b"), "ms"), (OTHER, message("a"), "ms")])
    assert (described(first), str(failed)) == (described(message("a", "b")), "ours")
    assert quota.series_of(world.store, APP) == 2


def test_message_with_an_error_of_our_own_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    admission = World().admission()
    admission.admit(APP, message("a"))
    monkeypatch.delattr(MemoryBackend, "get")
    old, new = admission.admit_many([(APP, message("a"), "ms"), (APP, message("b"), "ms")])
    assert described(old) == described(message("a"))
    assert isinstance(new, AttributeError)


# --- rate -------------------------------------------------------------------------------------------------------------


def taken_in(world: World, admissions: list[Admission], size: int, seconds: float) -> int:
    """Samples let in when every admission's senders push as fast as they may, for some seconds."""
    body, count, end = message(*map(str, range(size))), 0, world.clock.monotonic() + seconds
    while world.clock.monotonic() < end:
        for admission in admissions:
            try:
                admission.check_rate(APP)
                count += len(admission.admit(APP, body).ts)
            except TooFast:
                continue
        world.clock.advance(20)
    return count


@pytest.mark.parametrize("processes", [1, 3])
def test_rate_holds_on_average_over_all_processes(processes: int) -> None:
    rate, size = 1_000, 100
    world = World(samples_per_s=rate)
    count = taken_in(world, [world.admission() for _ in range(processes)], size, 60)
    most = rate * (60 + limits.QUOTA_BURST_S) + processes * (rate * limits.QUOTA_PORTION_S + size) + rate
    assert 0.95 * rate * 60 <= count <= most


def test_app_within_its_rate_is_never_told_to_wait() -> None:
    world = World(samples_per_s=1_000)
    admission = world.admission()
    for _ in range(600):
        admission.check_rate(APP)
        admission.admit(APP, message(*map(str, range(99))))
        world.clock.advance(100)


def test_who_is_told_to_wait_gets_in_when_it_comes_back_then() -> None:
    world = World(samples_per_s=100)
    admission, body = world.admission(), message(*map(str, range(5_000)))
    admission.check_rate(APP)
    admission.admit(APP, body)  # fifty seconds of its rate at once
    waits: list[float] = []
    for _ in range(200):
        try:
            admission.check_rate(APP)
            break
        except TooFast as error:
            waits.append(error.wait_s)
            world.clock.advance(round(error.wait_s * 1_000) + 1)
    assert 30 < sum(waits) < 55
    assert max(waits) <= limits.QUOTA_BURST_S


def test_an_app_without_a_rate_is_never_refused_and_asks_nobody() -> None:
    world = World(samples_per_s=None)
    admission, body = world.admission(), message(*map(str, range(5_000)))
    assert not admission.has_allowance(APP)
    for _ in range(300):
        admission.check_rate(APP)
        admission.admit(APP, body)
        assert admission.has_allowance(APP)
        world.clock.advance(10)
    world.allowed = Quota(samples_per_s=1)  # staff set a rate: it holds once the quota is read again
    world.clock.advance(1_000 * limits.QUOTA_CACHE_S)
    admission.check_rate(APP)
    admission.admit(APP, body)
    with pytest.raises(TooFast, match="SPM_APP_RATE_MAX"):
        admission.check_rate(APP)


def test_another_app_is_not_slowed_by_one_that_is_too_fast() -> None:
    world = World(samples_per_s=10)
    admission = world.admission()
    assert taken_in(world, [admission], 100, 2) < 1_000
    with pytest.raises(TooFast):
        admission.check_rate(APP)
    admission.check_rate(OTHER)


def test_two_first_bodies_of_an_app_at_one_moment_share_one_allowance(monkeypatch: pytest.MonkeyPatch) -> None:
    world, portions = World(samples_per_s=1_000), list[int]()
    rates = RateAllowances(world.store, world.clock, lambda app: world.allowed, StorePause(world.clock))
    look_up, meeting = rates._allowances.get, threading.Barrier(2)

    def look_up_together(app: int) -> RateAllowance | None:
        allowance = look_up(app)
        with suppress(threading.BrokenBarrierError):
            meeting.wait(0.2)
        return allowance

    def take_samples(store: Backend, app: int, *, wanted: int, rate: int, now_ms: int, bucket: object) -> quota.Portion:
        portions.append(wanted)
        return quota.Portion(True)

    monkeypatch.setattr(rates._allowances, "get", look_up_together)
    monkeypatch.setattr(quota, "take_samples", take_samples)
    threads = [threading.Thread(target=rates.check, args=[APP]) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rates.charge(APP, sum(portions) - 1)
    count = len(portions)
    rates.check(APP)  # one sample is left: the store need not be asked
    assert len(portions) == count


def test_process_with_a_clock_far_behind_counts_for_itself() -> None:
    world = World(samples_per_s=10)
    far = NOW_MS + 10 * 60_000
    quota.take_samples(world.store, APP, wanted=10, rate=10, now_ms=far)
    world.admission().check_rate(APP)


# --- times ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ms", "unit", "meant"),
    [
        (NOW_MS // 1_000, "ms", "seconds, read as milliseconds"),
        (NOW_MS // 10**6, "us", "seconds, read as microseconds"),
        (NOW_MS // 10**9, "ns", "seconds, read as nanoseconds"),
        (NOW_MS // 10**6, "ns", "milliseconds, read as nanoseconds"),
        (NOW_MS // 10**3, "ns", "microseconds, read as nanoseconds"),
    ],
)
def test_time_in_the_wrong_unit_is_refused_with_the_likely_one(ms: int, unit: str, meant: str) -> None:
    parsed = World().admission().admit(APP, message("a", ts=ms), unit)
    assert (len(parsed.ts), parsed.rejected) == (0, 1)
    assert parsed.rejections[0].reason.endswith(meant)


@pytest.mark.parametrize("ms", [5, 86_400_000, times.MISREAD_MS, NOW_MS])
def test_old_time_that_no_other_unit_brings_near_now_is_taken(ms: int) -> None:
    assert World().admission().admit(APP, message("a", ts=ms)).rejected == 0


def test_time_before_all_retention_is_refused() -> None:
    admission = World(kept_days=30).admission()
    old = NOW_MS - 32 * 86_400_000
    assert [r.reason for r in admission.admit(APP, message("a", ts=old)).rejections] == [times.TOO_OLD]
    assert admission.admit(APP, message("a", ts=NOW_MS - 30 * 86_400_000)).rejected == 0


def test_count_of_the_dictionary_stops_behind_its_bound() -> None:
    world = World()
    world.write(message(*map(str, range(20))))
    assert quota.count_series(world.store, APP, 100) == 20
    assert quota.count_series(world.store, APP, 5) == 6
    assert keys.series_ranges(APP)


def test_a_few_live_bodies_of_known_series_are_admitted_by_a_look_at_each(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = World(series=10).admission()
    bodies = [(APP, message("a", "b"), "ms"), (APP, message("c"), "ms")]
    assert one.admit_many(bodies) == [parsed for _, parsed, _ in bodies]
    monkeypatch.setattr("ingest.accept.admission._first_times", None)
    monkeypatch.setattr(SeriesQuota, "_unknown", None)
    again = one.admit_many(bodies)
    assert all(admitted is parsed for admitted, (_, parsed, _) in zip(again, bodies, strict=True))
    assert not caplog.records  # of bodies that could not be admitted together
