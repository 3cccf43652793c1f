"""Hours of the past have a quota: each costs rows and a part of a run, however few its samples are."""

from dataclasses import replace

import numpy as np
import pytest

from ingest.accept.admission import Admission
from ingest.transport.limits import APART_HOURS, APART_S, APART_SERIES
from spm import limits
from spm.errors import StoreUnavailable
from spm.store.backends.memory import MemoryBackend
from spm.store.ledger import quota
from spm.wire import Parsed
from tests.ingest.accept.test_admission import APP, NOW_MS, OTHER, World, hosts, message


def hours_ago(*hours: int) -> Parsed:
    parsed = message(*map(str, hours))
    return replace(parsed, ts=NOW_MS - np.array(hours, np.int64) * limits.HOUR_MS)


def test_hours_of_the_past_over_the_quota_are_refused_and_live_ones_flow_on() -> None:
    """10,000 samples, each in an hour of its own, cost 45 s of a worker: no rate of samples bounds that."""
    admission = World(past_hours=3).admission()
    assert hosts(admission.admit(APP, hours_ago(0, 100, 101, 102))) == ["0", "100", "101", "102"]
    assert hosts(admission.admit(APP, hours_ago(100, 101))) == ["100", "101"]  # no new ones
    assert hosts(admission.admit(APP, hours_ago(200))) == ["200"]  # the bound itself
    parsed = admission.admit(APP, hours_ago(1, 300, 40, 100, 301))
    assert (hosts(parsed), parsed.rejected) == (["1", "40", "100"], 2)
    for part in ("3 such hours within an hour", "SPM_APP_PAST_HOURS_MAX"):
        assert part in parsed.rejections[0].reason
    assert hosts(admission.admit(OTHER, hours_ago(300))) == ["300"]


@pytest.mark.parametrize("together", [True, False], ids=["many messages", "one message"])
def test_hours_of_the_past_are_shared_by_processes_and_come_back_with_time(together: bool) -> None:
    world = World(past_hours=60)

    def admit(admission: Admission, *hours: int) -> list[str]:
        if not together:
            return hosts(admission.admit(APP, hours_ago(*hours)))
        first, _ = admission.admit_many([(APP, hours_ago(*hours), "ms"), (OTHER, hours_ago(0), "ms")])
        assert isinstance(first, Parsed)
        return hosts(first)

    one, other = world.admission(), world.admission()
    assert len(admit(one, *range(100, 160))) == 60
    assert admit(other, 200) == ["200"]
    assert admit(other, 201) == admit(one, 202) == []
    world.clock.advance(61_000)  # a sixtieth of an hour and a little: one more
    assert admit(other, 203) == ["203"]
    assert admit(one, 204) == []


def test_hours_of_the_past_are_free_without_a_quota_and_without_a_store() -> None:
    assert len(World(past_hours=None).admission().admit(APP, hours_ago(*range(50, 950))).ts) == 900

    class Gone:
        def get(self, *_: object, **__: object) -> None:
            raise StoreUnavailable("gone")

    assert hosts(World(past_hours=1).admission(Gone()).admit(APP, hours_ago(60, 70, 80))) == ["60", "70", "80"]  # type: ignore[arg-type]


@pytest.mark.parametrize("what", ["new series", "new series, together", "many hours"])
def test_an_app_is_slow_for_a_while_after_what_takes_long(what: str) -> None:
    world = World()
    admission, few = world.admission(), message(*map(str, range(APART_SERIES - 1)))
    admission.admit(APP, few)
    assert not admission.is_slow(APP)
    if what == "new series":
        admission.admit(APP, message(*map(str, range(1_000, 1_000 + APART_SERIES))))
    elif what == "new series, together":
        many = message(*map(str, range(1_000, 1_000 + APART_SERIES)))
        admission.admit_many([(OTHER, few, "ms"), (APP, many, "ms")])
    else:
        admission.admit(APP, hours_ago(60, 59 + APART_HOURS))
        assert (admission.is_slow(APP), admission.sends_past(APP)) == (False, True)
        admission.admit(APP, hours_ago(60, 60 + APART_HOURS))
    assert (admission.is_slow(APP), admission.is_slow(OTHER)) == (True, False)
    world.clock.advance(round(APART_S * 1_000))
    admission.admit(APP, few)
    assert not admission.is_slow(APP)
    assert not admission.sends_past(APP)


def test_an_app_that_overdraws_its_burst_is_not_taken_for_a_wrong_clock() -> None:
    """What is granted at once may be a burst, so that the shared moment may be two bursts ahead."""
    store = MemoryBackend()
    for _ in range(2):
        assert quota.take_samples(store, APP, wanted=36_000, rate=10, now_ms=NOW_MS, bucket=quota.QUEUED).given
    turn = quota.take_samples(store, APP, wanted=1, rate=10, now_ms=NOW_MS, bucket=quota.QUEUED)
    assert (turn.given, turn.wait_s) == (False, 3_600)
