"""The balance is exact while web servers and workers are killed, and agrees with the sender's log at the end."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spm.store.ledger.balance import Balance, SampleCounts
from tests.chaos.ledger.balance import Watch, disagreements
from tests.chaos.line.agents import Agents, message_of_either_kind
from tests.chaos.line.checker import ACKED, UNKNOWN, Sent, violations
from tests.chaos.line.thin_line import APP, Line
from tests.servers.processes import wait_until
from tests.servers.rabbitmq import RabbitMQ
from tests.support.messages import LONG_AGO_MS, RECENT_MS
from tests.support.stored import copies, samples

START_MS = RECENT_MS
FIELDS = 20


@pytest.fixture
def line(tmp_path: Path, amqp_vhost: str) -> Iterator[Line]:
    line_ = Line(tmp_path, f"lmdb://{tmp_path}/store", amqp_vhost)
    yield line_
    line_.close()


@pytest.mark.real
@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.seed(
    "A11", compares="the account, at moments of a storm and after it, with the sender's log and the store"
)
def test_a11_the_account_agrees_with_the_sender_while_processes_are_killed(
    line: Line, rabbitmq: RabbitMQ, figure: Callable[[str], None], size: Callable[[str, int], int]
) -> None:
    rounds = size("KILLS", 3)
    token = line.token()
    agents = Agents(line.start_web(), token, 0.01)
    watch = Watch(line.backend, APP)
    looking = threading.Thread(target=watch.run)
    looking.start()
    workers = [line.start_worker()]
    over = threading.Event()
    log: list[Sent] = []
    sending = threading.Thread(
        target=lambda: log.extend(
            agents.send_until(lambda _: over.is_set(), lambda n: message_of_either_kind(n, START_MS, FIELDS))
        )
    )
    sending.start()
    kills: Counter[str] = Counter()
    for _ in range(rounds):
        for name in ("worker", "web"):
            before = len(line.stored())
            assert wait_until(lambda before=before: len(line.stored()) > before + 40, 240)  # type: ignore[misc]
            kills[name] += 1
            if name == "worker":
                workers.pop().kill()
                workers.append(line.start_worker())
            else:
                line.web.kill()
                line.start_web()
    over.set()
    sending.join()
    line.settle(rabbitmq)
    watch.stopping.set()
    looking.join()
    assert wait_until(lambda: at_rest(watch.look()), 90)
    balance, copies_ = watch.look(), copies(line.backend)
    assert balance is not None
    assert watch.wrong == []
    assert disagreements(log, copies_, balance) == []
    stored = samples(line.backend, START_MS - LONG_AGO_MS - 1, START_MS + 1000 * (1 + len(log)), app=APP)
    assert violations(log, stored, copies_) == []
    assert watch.waited > 0, "no look was in the middle of anything"
    figure(
        f"{watch.looks} looks, {watch.waited} with something on its way; {balance.messages.accepted} messages "
        f"accepted, {balance.messages.unconfirmed} unconfirmed; killed {dict(kills)}"
    )


def at_rest(balance: Balance | None) -> bool:
    """Whether all has come to its end but what died with its process."""
    return balance is not None and balance.messages.queued == balance.messages.in_flight == 0


STAMP, OTHER = (1, 1, 0), (2, 1, 0)


@pytest.mark.parametrize(
    ("messages", "samples_", "copies_", "wrong"),
    [
        (SampleCounts(1, stored=1), SampleCounts(2, stored=2), {b"m": {STAMP: 2}}, []),
        (SampleCounts(2, stored=2), SampleCounts(4, stored=4), {b"m": {STAMP: 2, OTHER: 2}}, []),
        (SampleCounts(2, stored=1, unconfirmed=1), SampleCounts(4, stored=2, unconfirmed=2), {b"m": {STAMP: 2}}, []),
        (
            SampleCounts(2, stored=2),
            SampleCounts(4, stored=4),
            {b"m": {STAMP: 2}},
            ["2 messages stored", "4 samples stored"],
        ),
        (SampleCounts(0), SampleCounts(0), {}, ["0 stored, 1 acknowledged"]),
        (
            SampleCounts(3, stored=3),
            SampleCounts(6, stored=6),
            {b"m": {STAMP: 2, OTHER: 2, (3, 1, 0): 2}},
            ["3 accepted in 2"],
        ),
        (
            SampleCounts(2, stored=1, queued=1),
            SampleCounts(4, stored=2, queued=2),
            {b"m": {STAMP: 2}},
            ["1 queued at rest"],
        ),
        (SampleCounts(1, stored=1), SampleCounts(2, stored=1, dead=1), {b"m": {STAMP: 1}}, ["1 lost of good samples"]),
    ],
    ids=[
        "stored",
        "accepted twice",
        "died with its process",
        "a stamp too many",
        "an acknowledged one is nowhere",
        "accepted too often",
        "still queued",
        "a dead sample",
    ],
)
def test_the_comparison_finds_every_way_to_disagree(
    messages: SampleCounts,
    samples_: SampleCounts,
    copies_: dict[bytes, dict[tuple[int, int, int], int]],
    wrong: list[str],
) -> None:
    log = [Sent(b"m", (), ACKED, stamps_max=1), Sent(b"n", (), UNKNOWN, stamps_max=1)]
    balance = disagreements(log, copies_, Balance(APP, 0, messages, samples_, 0, ()))
    assert [text[: len(start)] for text, start in zip(balance, wrong, strict=True)] == wrong
