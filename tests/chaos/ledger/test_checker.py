"""The ledger checker finds every kind of violation, in tables and in real workers that have the fault on purpose."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest.writer import Writer
from spm.store.keys import PlacementTable
from tests.chaos.line.checker import ACKED, REFUSED, UNKNOWN, Sent, violations
from tests.chaos.line.thin_line import APP, ROOT, Line
from tests.servers.processes import Process, wait_until
from tests.servers.rabbitmq import RabbitMQ
from tests.support.messages import message, recent
from tests.support.stored import Sample, copies, samples, sent

A, B = ("a", 1, b"1"), ("b", 1, b"2")
STAMP, OTHER = (1, 1, 0), (2, 1, 0)


@pytest.mark.parametrize(
    ("outcome", "stored", "copies_", "kind"),
    [
        (ACKED, [A, B], {b"m": {STAMP: 2}}, None),
        (UNKNOWN, [], {}, None),
        (UNKNOWN, [A, B], {b"m": {STAMP: 2, OTHER: 2}}, None),
        (ACKED, [A], {b"m": {STAMP: 2}}, "lost"),
        (REFUSED, [A], {b"m": {STAMP: 2}}, "invented"),
        (ACKED, [A, B, ("c", 1, b"3")], {b"m": {STAMP: 2}}, "invented"),
        (ACKED, [A, B, ("b", 1, b"9")], {b"m": {STAMP: 2}}, "invented"),
        (ACKED, [A, A, B], {b"m": {STAMP: 2}}, "doubled"),
        (ACKED, [A, B], {b"m": {STAMP: 2}, b"x": {STAMP: 1}}, "stranger"),
        (ACKED, [A, B], {b"m": {STAMP: 2, OTHER: 2, (3, 1, 0): 2}}, "restamped"),
        (ACKED, [A, B], {b"m": {STAMP: 1}}, "miscounted"),
    ],
)
def test_of_a_message_of_two_samples_accepted_at_most_twice(
    outcome: str, stored: list[Sample], copies_: dict[bytes, dict[tuple[int, int, int], int]], kind: str | None
) -> None:
    said = violations([Sent(b"m", (A, B), outcome, stamps_max=2)], Counter(stored), copies_)
    assert [sentence.partition(":")[0] for sentence in said] == ([] if kind is None else [kind])


@pytest.fixture
def line(tmp_path: Path, amqp_vhost: str) -> Iterator[Line]:
    line_ = Line(tmp_path, f"lmdb://{tmp_path}/store", amqp_vhost)
    yield line_
    line_.close()


@pytest.mark.real
@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "kind"), [("AckBeforeWrite", "lost"), ("RestampOnRedelivery", "restamped"), ("Noting", None)]
)
def test_a_worker_that_is_killed_and_has_the_fault_is_found_out(
    line: Line, rabbitmq: RabbitMQ, fault: str, kind: str | None
) -> None:
    envelopes = [line.restamped(recent(message(number, source=f"host{number % 5}"))) for number in range(400)]
    line.step = f"tests.chaos.faults.consumers:{fault}"
    line.publish(envelopes[:200])
    worker = line.start_worker()
    assert wait_until(lambda: Path(line.folder, "fault").exists() or bool(line.stored()), 60)
    worker.kill()
    line.publish(envelopes[200:])
    line.start_worker()
    line.settle(rabbitmq)
    log = [Sent(e.message_id, tuple(sent([e])), ACKED) for e in envelopes]
    first, last = min(int(e.ts.min()) for e in envelopes), max(int(e.ts.max()) for e in envelopes)
    said = violations(log, samples(line.backend, first - 1, last), copies(line.backend))
    assert [sentence.partition(":")[0] for sentence in said] == ([] if kind is None else [kind])


@pytest.mark.real
@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "kind"), [("tests.chaos.faults.hasty_run", "lost"), ("manage.py", None)], ids=["unpends first", "sound"]
)
def test_a_run_that_unpends_before_it_publishes_and_is_killed_is_found_out(
    line: Line, command: str, kind: str | None
) -> None:
    envelopes = [line.restamped(message(number, source=f"host{number % 5}")) for number in range(100)]
    line.token()
    Writer(line.backend, PlacementTable()).write(envelopes)
    run = Process("roll", line.folder)
    line.fork(run, [command, "roll", "--local", "--app", str(APP)], ROOT)
    assert wait_until(lambda: not run.alive(), 120)
    log = [Sent(e.message_id, tuple(sent([e])), ACKED) for e in envelopes]
    first, last = min(int(e.ts.min()) for e in envelopes), max(int(e.ts.max()) for e in envelopes)
    said = violations(log, samples(line.backend, first - 1, last), copies(line.backend))
    assert [sentence.partition(":")[0] for sentence in said] == ([] if kind is None else [f"{kind}"])
    assert line.stored() == set(), "the run took the commit records"
