"""Batch size, age and prefetch are settings with ranges, and what they do is seen in a worker's own metrics."""

import importlib
import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from environs.exceptions import EnvValidationError

from ingest.transport import topology
from ingest.transport.topology import Address
from ingest.worker import connections
from ingest.worker.batch import Batcher, Bounds, bounds_of
from ingest.worker.consumer import Consumer
from ingest.worker.metrics import metrics_text
from ingest.writer import Writer
from spm import limits
from spm.clock import FakeClock
from spm.settings import work
from spm.store.keys import PlacementTable
from tests.ingest.worker.test_consumer import Notes, Store, delivery
from tests.support.messages import message

RANGES = {
    "SPM_BATCH_MESSAGES": (1, 16_384),
    "SPM_BATCH_AGE_MS": (50, 5_000),
    "SPM_PREFETCH": (64, 8_192),
    "SPM_RUN_ROWS": (10, 5_000),
    "SPM_RUN_SAMPLES": (10_000, limits.ROLL_LOCAL_SAMPLES_MAX),
    "SPM_RUN_AGE_S": (60, 21_600),
}


@pytest.fixture
def read_again(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, object], Any]]:
    """Read a setting of the environment, as a process does when it starts."""

    def read(name: str, value: object) -> Any:
        monkeypatch.setenv(name, str(value))
        return getattr(importlib.reload(work), name)

    yield read
    monkeypatch.undo()
    importlib.reload(work)


@pytest.mark.parametrize("name", RANGES)
def test_a_setting_is_taken_within_its_range_and_refused_beyond_it(
    name: str, read_again: Callable[[str, object], Any]
) -> None:
    least, most = RANGES[name]
    assert [read_again(name, value) for value in (least, most)] == [least, most]
    for beyond in (least - 1, most + 1):
        with pytest.raises(EnvValidationError, match=name):
            read_again(name, beyond)


def test_the_defaults_are_the_limits() -> None:
    assert bounds_of(work.SPM_BATCH_MESSAGES, work.SPM_BATCH_AGE_MS) == Bounds()
    assert work.SPM_PREFETCH == limits.CONSUME_UNACKED_MAX


def test_a_worker_consumes_by_its_settings(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.SPM_BATCH_MESSAGES, settings.SPM_BATCH_AGE_MS, settings.SPM_PREFETCH = 7, 300, 128
    options_given: dict[str, Any] = {}

    def service(*_: object, **options: object) -> SimpleNamespace:
        options_given.update(options)
        return SimpleNamespace(start=lambda: None)

    step = connections.ConsumerStep(None)
    monkeypatch.setattr(step, "service", service)
    step.start(None)
    assert options_given == {"bounds": Bounds(messages=7, age_ms=300, age_max_ms=750), "unacked_max": 128}
    assert sum(topology.prefetch(Address("", 4).queues()[:2], options_given["unacked_max"]).values()) <= 2 * 128


@pytest.mark.seed("A41", compares="messages per batch in a worker's own metrics, with the setting it was started by")
@pytest.mark.parametrize("messages", [1, 4, 8])
def test_the_size_of_batches_is_seen_in_the_workers_own_metrics(messages: int, figure: Callable[[str], None]) -> None:
    notes, clock = Notes(), FakeClock()
    batcher = Batcher(bounds_of(messages, 1_000))
    worker = Consumer(Writer(Store(), PlacementTable()), notes, clock=clock, batcher=batcher, wait=clock.sleep)
    worker.connect(notes)
    for number in range(1, 17):
        worker.take(delivery(number, message(number).to_bytes()))
    for _ in range(16 // messages):
        worker.step()
    shown = dict(re.findall(r"^spm_worker_(messages|batches)_total (\d+)", metrics_text(worker.tally, 0, {}), re.M))
    figure(f"SPM_BATCH_MESSAGES={messages}: {shown['messages']} messages in {shown['batches']} batches")
    assert (int(shown["messages"]), int(shown["batches"])) == (16, 16 // messages)
