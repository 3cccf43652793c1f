"""Claims about ``Acceptor.accept_many``: it gives each message what ``accept`` of it alone gives, and tells it once."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.accept.acceptor import Acceptance, Acceptor
from ingest.accept.admission import Admission
from ingest.accept.identity import Sender
from ingest.transport.base import Submission, Trouble
from spm.accounts.quotas import Quota
from spm.clock import FakeClock
from spm.errors import QueueUnavailable, SpmError, StoreUnavailable
from spm.store.backends.memory import MemoryBackend
from spm.store.ledger import watermarks
from spm.wire import Envelope, Parsed, SeriesTable, canonical
from tests.ingest.http.pushing import HeldTransport
from tests.support.acceptors import silent_announcer

NOW_MS = 1_700_000_000_000
APPS = (1, 2, 3)


class Apps:
    """Quotas by app: the first has room, the second for three series, the third fails."""

    def __call__(self, app: int) -> Quota:
        if app == 3:
            raise StoreUnavailable("no quota")
        return Quota(series=1_000 if app == 1 else 3, samples_per_s=10**9)


@dataclass
class Process:
    """An acceptor over a held transport, with admission."""

    transport: HeldTransport = field(default_factory=HeldTransport)
    store: MemoryBackend = field(default_factory=MemoryBackend)
    clock: FakeClock = field(default_factory=lambda: FakeClock(NOW_MS))

    def __post_init__(self) -> None:
        self.announcer = silent_announcer(self.clock, self.store)
        admission = Admission(MemoryBackend(), self.clock, Apps())
        self.acceptor = Acceptor(self.announcer, self.transport, self.clock, admission)
        self.outcomes: dict[int, list[SpmError | None]] = {}

    def many(self, bodies: Sequence[tuple[int, Parsed]]) -> list[Acceptance]:
        """Accept bodies together."""
        messages = [
            Acceptance(body, Sender(app, "h"), bytes([number]) * 16, "ms", self.outcomes.setdefault(number, []).append)
            for number, (app, body) in enumerate(bodies)
        ]
        self.acceptor.accept_many(messages)
        return messages

    def counts(self, app: int) -> dict[int, tuple[int, int, bool]]:
        """Messages, open messages and end of each process, as announced."""
        self.announcer.announce()
        newest = {process: row.newest for process, row in watermarks.read(self.store, app).items()}
        return {
            process: (each.messages, each.open_messages, each.ended)
            for process, each in newest.items()
            if each is not None
        }


def body(names: Sequence[str], ts: int = NOW_MS, rejected: int = 0) -> Parsed:
    """One sample of each series."""
    table = SeriesTable.from_canonical([canonical(name, {}) for name in names])
    index = np.arange(len(names), dtype=np.int32)
    return Parsed(table, index, np.full(len(names), ts, np.int64), np.ones(len(names)), rejected=rejected)


def shown(envelope: Envelope) -> tuple[object, ...]:
    """An envelope without its stamp."""
    forms = [envelope.series.canonical(int(i)) for i in envelope.series_index]
    return envelope.app, envelope.source, envelope.message_id, forms, envelope.ts.tolist(), envelope.values.tolist()


def result(parsed: Parsed | None) -> object:
    """What a sender hears of a message."""
    if parsed is None:
        return None
    return len(parsed.ts), parsed.rejected, [(each.line, each.reason, each.example) for each in parsed.rejections]


BODIES = st.lists(
    st.tuples(
        st.sampled_from(APPS),
        st.builds(
            body,
            st.lists(st.sampled_from("abcdefgh"), max_size=5, unique=True),
            st.sampled_from([NOW_MS, NOW_MS - 1, 5]),
            st.integers(0, 2),
        ),
    ),
    max_size=12,
)


@pytest.mark.django_db
@given(BODIES)
@settings(max_examples=80)
def test_each_message_gets_what_accept_of_it_alone_gives(bodies: list[tuple[int, Parsed]]) -> None:
    together, alone = Process(), Process()
    messages = together.many(bodies)
    for number, (app, parsed) in enumerate(bodies):
        try:
            accepted, error = (
                alone.acceptor.accept(parsed, sender=Sender(app, "h"), message_id=bytes([number]) * 16),
                None,
            )
        except SpmError as raised:
            accepted, error = None, raised
        assert result(messages[number].accepted) == result(accepted)
        assert repr(messages[number].error) == repr(error)
        assert together.outcomes[number] == ([] if error is not None else [None])
    in_order = sorted(together.transport.published, key=lambda each: each.message_id)
    assert [shown(each) for each in in_order] == [shown(each) for each in alone.transport.published]
    assert [together.counts(app) for app in APPS] == [alone.counts(app) for app in APPS]
    assert together.transport.reserved == 0
    assert len(together.transport.submits) <= 2, "all at once, but those that take long"


def test_without_room_each_message_hears_it_and_none_is_stamped() -> None:
    process = Process()
    process.transport.full = QueueUnavailable("full")
    messages = process.many([(1, body("a")), (1, body(""))])
    assert isinstance(messages[0].error, QueueUnavailable)
    assert (messages[1].error, process.outcomes) == (None, {0: [], 1: [None]})
    assert process.counts(1) == {}


def test_a_message_is_open_until_its_outcome_is_known_which_is_told_once() -> None:
    process = Process(HeldTransport(confirms=False))
    messages = process.many([(1, body("a")), (2, body("b"))])
    assert process.outcomes == {0: [], 1: []}
    assert process.counts(1) == {1: (1, 1, False)}
    assert [each.trouble and each.trouble() for each in messages] == [None, None]
    process.transport.trouble = "the store stands still"
    assert [each.trouble and each.trouble() for each in messages] == ["the store stands still"] * 2
    process.transport.settle()
    assert process.outcomes == {0: [None], 1: [None]}
    assert process.counts(1) == {1: (1, 0, False)}


@pytest.mark.parametrize("how", ["the transport says so", "the transport fails"])
def test_a_process_that_lost_a_message_ends_and_another_goes_on(how: str) -> None:
    process = Process(HeldTransport(confirms=False))
    if how == "the transport fails":
        process.transport.fault = ZeroDivisionError("ours")
        messages = [Acceptance(body("a"), Sender(1, "h"), b"i" * 16, "ms", lambda error: None)]
        with pytest.raises(ZeroDivisionError):
            process.acceptor.accept_many(messages)
        assert messages[0].trouble is not None
        assert "nobody knows" in (messages[0].trouble() or "")
    else:
        process.many([(1, body("a"))])
        process.transport.settle(stored=False)
        [[error]] = process.outcomes.values()
        assert isinstance(error, StoreUnavailable)
    process.transport.fault, process.transport.confirms = None, True
    process.many([(1, body("a"))])
    assert process.counts(1) == {1: (1, 1, True), 2: (1, 0, False)}


def test_a_fault_in_admitting_messages_together_makes_them_be_admitted_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Admission, bodies: object) -> list[Parsed | Exception]:
        raise ZeroDivisionError

    monkeypatch.setattr(Admission, "admit_many", broken)
    process = Process()
    messages = process.many([(1, body("a")), (3, body("b")), (2, body("c"))])
    assert [type(each.error) for each in messages] == [type(None), StoreUnavailable, type(None)]
    assert len(process.transport.published) == 2


def test_a_message_that_cannot_be_stamped_gives_its_room_back_and_harms_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ingest.accept.stamper.MESSAGE_HOURS_MAX", 1)
    wide = body("ab")
    wide = replace(wide, ts=np.array([NOW_MS, NOW_MS - 10 * 3_600_000], np.int64))
    process = Process()
    messages = process.many([(1, body("a")), (1, wide), (1, body("b"))])
    assert [each.error is None for each in messages] == [True, False, True]
    assert (process.transport.reserved, process.outcomes[1]) == (0, [])


def test_outcomes_that_come_before_submit_returns_are_told_once() -> None:
    class Quick(HeldTransport):
        def submit(self, messages: Sequence[Submission]) -> list[Trouble]:
            troubles = super().submit(messages)
            assert not self.unconfirmed
            return troubles

    process = Process(Quick())
    process.many([(1, body("a")), (2, body("b"))])
    assert process.outcomes == {0: [None], 1: [None]}
