"""Claims about ingest/accept/acceptor.py: room before the stamp, one count per stamp, and no stamp forgotten."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingest.accept.acceptor import Acceptor
from ingest.accept.identity import Sender
from ingest.accept.process_acceptor import close_process_acceptor, process_acceptor
from ingest.transport.direct import DirectTransport
from ingest.writer import Writer
from spm import limits
from spm.accounts.models import App, Organisation
from spm.clock import FakeClock
from spm.errors import BadMessage, QueueUnavailable, SpmError, StoreUnavailable
from spm.store.backends import open_backend
from spm.store.backends.memory import MemoryBackend
from spm.store.keys import PlacementTable
from spm.store.ledger import watermarks
from spm.store.ledger.watermarks import Announcement
from spm.wire import Parsed
from tests.ingest.accept.test_announcer import parsed
from tests.support.acceptors import Recorder, silent_announcer

pytestmark = pytest.mark.django_db


class Bench:
    """An acceptor over a recording transport, and its announcements in the store."""

    def __init__(self, app: int) -> None:
        self.store, self.clock, self.transport = MemoryBackend(), FakeClock(), Recorder()
        self.announcer = silent_announcer(self.clock, self.store)
        self.acceptor = Acceptor(self.announcer, self.transport, self.clock)
        self.sender = Sender(app, "h")

    def push(self, body: Parsed | None = None) -> None:
        self.acceptor.accept(parsed() if body is None else body, sender=self.sender, message_id=b"i" * 16)

    def heard(self) -> dict[int, Announcement]:
        self.announcer.announce()
        newest = {process: row.newest for process, row in watermarks.read(self.store, self.sender.app_id).items()}
        return {process: announcement for process, announcement in newest.items() if announcement is not None}


@pytest.fixture
def bench() -> Bench:
    organisation = Organisation.objects.create(name="Example")
    return Bench(App.objects.create(organisation=organisation, name="Shop").pk)


def test_a_message_without_room_is_never_stamped(bench: Bench) -> None:
    bench.transport.full = QueueUnavailable("full")
    with pytest.raises(QueueUnavailable):
        bench.push()
    assert bench.heard() == {}
    bench.transport.full = None
    bench.push()
    assert bench.heard()[1].messages == 1


def test_a_body_that_is_refused_as_a_whole_is_not_counted(bench: Bench) -> None:
    bench.push(replace(parsed(), ts=np.empty(0, np.int64), rejected=3))
    assert (bench.heard(), bench.transport.published) == ({}, [])


def test_a_message_that_cannot_be_stamped_gives_its_room_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingest.accept.stamper.MESSAGE_HOURS_MAX", 0)
    with pytest.raises(BadMessage):
        bench.push()
    assert (bench.transport.reserved, bench.heard()) == (0, {})


def test_a_stamped_message_whose_sender_was_sent_away_stays_open_until_it_is_confirmed(bench: Bench) -> None:
    bench.transport.error = QueueUnavailable("no confirm")
    with pytest.raises(QueueUnavailable):
        bench.push()
    assert (bench.heard()[1].messages, bench.heard()[1].open_messages) == (1, 1)
    bench.transport.outcomes[0](True)
    assert (bench.heard()[1].messages, bench.heard()[1].open_messages) == (1, 0)


@pytest.mark.parametrize("lost", ["told by the transport", "a failure of ours"])
def test_a_process_that_lost_a_stamped_message_ends_and_another_goes_on(bench: Bench, lost: str) -> None:
    bench.transport.error = QueueUnavailable("no confirm") if lost == "told by the transport" else ZeroDivisionError()
    with pytest.raises((QueueUnavailable, ZeroDivisionError)):
        bench.push()
    if lost == "told by the transport":
        bench.transport.outcomes[0](False)
    bench.transport.error = None
    bench.push()
    heard = bench.heard()
    assert {process: (word.messages, word.open_messages, word.ended) for process, word in heard.items()} == {
        1: (1, 1, True),
        2: (1, 0, False),
    }


def test_a_process_number_that_cannot_be_taken_is_asked_for_again(bench: Bench) -> None:
    def fails(*_: object) -> bool:
        raise StoreUnavailable("no answer")

    works: Callable[..., bool] = bench.store.check_and_put
    bench.store.check_and_put = fails  # type: ignore[method-assign, assignment]
    with pytest.raises(StoreUnavailable):
        bench.push()
    assert bench.transport.reserved == 0
    bench.store.check_and_put = works  # type: ignore[method-assign]
    bench.push()
    assert bench.heard()[1].messages == 1


def test_a_closed_acceptor_has_stored_everything_and_announces_its_end(bench: Bench) -> None:
    transport = DirectTransport(Writer(bench.store, PlacementTable()))
    acceptor = Acceptor(bench.announcer, transport, bench.clock)
    acceptor.accept(parsed(), sender=bench.sender, message_id=b"i" * 16)
    acceptor.close()
    announcement = bench.heard()[1]
    assert (announcement.messages, announcement.open_messages, announcement.ended) == (1, 0, True)
    with pytest.raises(SpmError):
        acceptor.accept(parsed(), sender=bench.sender, message_id=b"i" * 16)


def test_the_times_a_sender_may_wait_fit_into_each_other() -> None:
    assert limits.PUBLISH_LOOK_S + limits.PUBLISH_STALL_S < limits.PUBLISH_TIMEOUT_S < limits.AGENT_TIMEOUT_S
    assert limits.PUBLISH_CLOSE_S + limits.ANNOUNCE_STOP_S < 10  # which is what web servers give a process that ends


@pytest.mark.parametrize("store_there", [True, False], ids=["the store hears it", "the store is gone"])
def test_the_acceptor_of_a_process_announces_its_end_once_or_logs_that_it_cannot(
    bench: Bench, settings: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, store_there: bool
) -> None:
    settings.SPM_STORE_URL, settings.SPM_TRANSPORT = f"lmdb://{tmp_path}/store", "direct"
    close_process_acceptor()
    process_acceptor().accept(parsed(), sender=bench.sender, message_id=b"i" * 16)
    store: Any = open_backend(settings.SPM_STORE_URL)
    if store_there:
        close_process_acceptor()
        [row] = watermarks.read(store, bench.sender.app_id).values()
        assert row.newest is not None
        assert (row.newest.messages, row.newest.ended) == (1, True)
    store.close()
    for _ in range(2):
        close_process_acceptor()
    assert ("cannot be announced" in caplog.text) == (not store_there)
