"""A message that may end its process is tried in a process of its own; and the inbox of the writing thread."""

import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest.transport.delivery import Delivery
from ingest.transport.topology import AGENTS
from ingest.worker.inbox import Inbox
from ingest.worker.poison_sandbox import PoisonSandbox
from spm.errors import StoreUnavailable
from tests.chaos.faults.cursed import CURSES
from tests.support.messages import message


def suspect(body: bytes, exchange: str = "") -> Delivery:
    return Delivery(1, 1, "q", body, "id", 0, exchange=exchange, tries=3)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[PoisonSandbox]:
    """With a child that dies of some bodies."""
    poison_sandbox = PoisonSandbox((sys.executable, "-m", "tests.chaos.faults.cursed"))
    yield poison_sandbox
    poison_sandbox.close()


@pytest.mark.parametrize(
    ("body", "exchange"),
    [(message(1).to_bytes(), ""), (b"garbage", ""), (b"m v=1", AGENTS), (b"no line", AGENTS)],
    ids=["an envelope", "no envelope", "lines", "no lines"],
)
def test_what_can_be_handled_or_refused_is_left_to_the_worker(
    sandbox: PoisonSandbox, body: bytes, exchange: str
) -> None:
    assert sandbox.try_delivery(suspect(body, exchange)) is None


@pytest.mark.parametrize("curse", CURSES)
def test_what_ends_its_process_is_named_and_the_next_one_is_tried_all_the_same(
    sandbox: PoisonSandbox, curse: str
) -> None:
    assert "ended 3 workers, and the process that tried it" in str(
        sandbox.try_delivery(suspect(curse.encode(), AGENTS))
    )
    assert sandbox.try_delivery(suspect(message(1).to_bytes())) is None


BEGUN = "import sys, time; sys.stdout.write('+'); sys.stdout.flush(); "


def test_what_does_not_come_back_in_time_is_ended() -> None:
    slow = PoisonSandbox((sys.executable, "-c", f"{BEGUN} time.sleep(60)"), wait_s=2)
    assert "signal 9" in str(slow.try_delivery(suspect(b"x")))


def child(handle: str, trial_s: float) -> PoisonSandbox:
    """A sandbox whose child does this with every message, and has so long on a processor."""
    imports = "import sys; from ingest.worker import poison_sandbox; from spm import limits"
    main = f"limits.SANDBOX_CPU_S = {trial_s}; poison_sandbox.main(sys.stdin.buffer, sys.stdout.buffer)"
    code = f"{imports}; poison_sandbox.handle = {handle}; {main}"
    return PoisonSandbox((sys.executable, "-c", code))


def test_what_takes_a_processor_for_too_long_is_ended_by_its_own_clock() -> None:
    busy = child("lambda tried: all(iter(lambda: 1, 0))", 0.2)
    assert f"signal {signal.SIGPROF.value}" in str(busy.try_delivery(suspect(b"x")))


def test_what_takes_more_memory_than_there_is_ends_the_child() -> None:
    greedy = child("lambda tried: bytes(limits.SANDBOX_BYTES_MAX)", 20)
    assert "exit code 1" in str(greedy.try_delivery(suspect(b"x")))


def test_a_child_that_ended_before_it_got_a_message_is_no_fault_of_the_message(sandbox: PoisonSandbox) -> None:
    assert sandbox.try_delivery(suspect(message(1).to_bytes())) is None
    child = sandbox._child
    assert child is not None
    child.kill()
    child.wait()
    assert sandbox.try_delivery(suspect(message(2).to_bytes())) is None


LONG = b"x" * 2**20  # more than a pipe holds: its writer waits until it is read
DEAF = "import os, pathlib, sys, time; sys.stdout.write('+'); sys.stdout.flush(); "


def test_a_child_that_ends_while_it_receives_a_message_is_no_fault_of_the_message(tmp_path: Path) -> None:
    flag = f"flag = pathlib.Path({str(tmp_path / 'flag')!r})"
    once = f"{flag}; flag.exists() or (flag.touch(), time.sleep(0.3), os._exit(0))"
    then = f"sys.stdin.buffer.read({len(LONG)}); print('+', flush=True); time.sleep(60)"
    sandbox = PoisonSandbox((sys.executable, "-c", f"{DEAF}{once}; {then}"))
    assert sandbox.try_delivery(suspect(LONG)) is None
    sandbox.close()


def test_a_message_that_no_child_takes_to_its_end_is_to_blame() -> None:
    sandbox = PoisonSandbox((sys.executable, "-c", f"{DEAF}time.sleep(0.3); os._exit(7)"))
    assert "exit code 7" in str(sandbox.try_delivery(suspect(LONG)))


@pytest.mark.parametrize(
    "command", [("/nowhere/no-program",), (sys.executable, "-c", "raise SystemExit(3)")], ids=["no program", "ends"]
)
def test_a_message_that_cannot_be_tried_comes_again(command: tuple[str, ...]) -> None:
    with pytest.raises(StoreUnavailable, match="process to try a message in"):
        PoisonSandbox(command).try_delivery(suspect(b"x"))


def test_the_inbox_gives_what_came_in_its_order() -> None:
    inbox = Inbox()
    for tag in range(3):
        inbox.put(Delivery(1, tag, "q", b"", "", 0))
    inbox.wait(1, None)
    taken = [inbox.take() for _ in range(4)]
    assert [None if each is None else each.tag for each in taken] == [0, 1, 2, None]


@pytest.mark.parametrize(("wanted", "put", "share"), [(3, 3, 64), (32, 1, 2)], ids=["enough came", "a scarce one came"])
def test_a_thread_that_waits_at_the_inbox_is_woken(wanted: int, put: int, share: int) -> None:
    inbox = Inbox()
    waiting = threading.Thread(target=inbox.wait, args=(wanted, 120))
    waiting.start()
    for tag in range(put):
        assert waiting.is_alive()
        inbox.put(Delivery(1, tag, "q", b"", "", 0, share=share))
    waiting.join(60)
    assert not waiting.is_alive()


def test_nobody_waits_at_an_inbox_that_is_closed() -> None:
    inbox = Inbox()
    inbox.close()
    inbox.wait(1, None)
