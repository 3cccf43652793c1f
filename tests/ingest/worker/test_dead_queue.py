"""What becomes of the queue of dead letters: letters with their cause and owner, and the account of every stamp."""

from datetime import UTC, datetime

import pytest

from ingest.accounting import dead_letter_review
from ingest.routing import AGENTS, LINES_TYPE
from ingest.transport import topology
from ingest.transport.delivery import Delivery
from ingest.worker.dead_queue import DeadLetterRecorder, cause_of
from ingest.writer import Writer
from spm import limits
from spm.clock import FakeClock
from spm.store.backends.memory import MemoryBackend
from spm.store.keys import PlacementTable
from spm.store.ledger import commit_records, dead_letters
from spm.wire import Envelope
from tests.support.rows import APP, START, envelope, plain
from tests.support.store_reader import look, reader

OTHERS = 99  # an app that an agent would like to write into
DIED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
WELL = envelope([(1, START + 1, 1.5), (2, START + 1, 2.5)], rejected=3, sequence=4)


def whose(delivery: Delivery) -> int | None:
    """As the front acceptor would say: by the key that the broker has checked, or by a token in a header."""
    if delivery.exchange == AGENTS:
        return APP if delivery.key.startswith("spm_good.") else None
    return APP if delivery.headers.get("x-spm-token") == "good" else None


def by_worker(body: bytes, **headers: str) -> Delivery:
    all_headers = {topology.CAUSE: "a reason", topology.AT_MS: "5000", **headers}
    return Delivery(1, 1, topology.DEAD, body, "id", 0, headers=all_headers, exchange=topology.DEAD)


def by_broker(body: bytes, key: str, *, reason: str = "rejected", media: str = "", **headers: object) -> Delivery:
    all_headers = {**headers, "x-death": [{"reason": reason, "time": DIED, "exchange": "whatever a sender may say"}]}
    return Delivery(1, 1, topology.DEAD, body, "id", 0, media, headers=all_headers, exchange=topology.DEAD, key=key)


def recorded(*deliveries: Delivery) -> MemoryBackend:
    store = MemoryBackend()
    DeadLetterRecorder(store, whose, FakeClock()).record([(each, cause_of(each)) for each in deliveries])
    return store


def stored_dead_letters(store: MemoryBackend, app: int) -> list[dead_letters.DeadLetter]:
    return [dead_letters.decode(each.raw) for each in dead_letters.newest(store, app, count=99)]


def accounts(store: MemoryBackend) -> list[tuple[int, list[int]]]:
    rows = [commit_records.decode_ledger_row(row[b"v"]) for _, row in store.scan("ledger", b"", b"\xff" * 30)]
    return sorted((outcome, commit.samples.tolist()) for commit, outcome, _ in rows)


def test_an_envelope_is_a_letter_of_its_app_and_accounted_as_dead() -> None:
    store = recorded(by_worker(WELL.to_bytes()))
    [letter] = stored_dead_letters(store, APP)
    assert (letter.kind, letter.cause, letter.body) == (dead_letters.MESSAGE, "a reason", WELL.to_bytes())
    assert accounts(store) == [(commit_records.REJECTED, [3]), (commit_records.DEAD, [2])]


def test_the_same_letter_delivered_again_changes_nothing() -> None:
    many = [by_worker(WELL.to_bytes()), by_worker(b"garbage"), by_broker(b"x", "spm_good.h")]
    once, twice = recorded(*many), recorded(*many, *many[::-1])
    for table in ("dead", "ledger"):
        assert list(once.scan(table, b"", b"\xff" * 64)) == list(twice.scan(table, b"", b"\xff" * 64))


FORGED = envelope([(1, START + 1, 1.5)], app=OTHERS).to_bytes()


@pytest.mark.parametrize(
    ("delivery", "app", "kind"),
    [
        (by_worker(b"m v=1", **{topology.APP: str(APP)}), APP, dead_letters.BODY),
        (by_worker(FORGED, **{topology.APP: str(APP)}), APP, dead_letters.BODY),
        (by_worker(b"m v=1", **{topology.APP: "0"}), dead_letters.UNKNOWN_APP, dead_letters.BODY),
        (by_worker(b"m v=1", **{topology.APP: "²"}), dead_letters.UNKNOWN_APP, dead_letters.BODY),
        (by_worker(b"m v=1", **{topology.APP: str(2**40)}), dead_letters.UNKNOWN_APP, dead_letters.BODY),
        (by_worker(b"no envelope"), dead_letters.UNKNOWN_APP, dead_letters.TORN),
        (by_broker(b"m v=1", "spm_good.h"), APP, dead_letters.BODY),
        (by_broker(FORGED, "spm_good.h"), APP, dead_letters.BODY),
        (by_broker(FORGED, "spm_gone.h"), dead_letters.UNKNOWN_APP, dead_letters.BODY),
        (by_broker(FORGED, "spm_good.h", **{topology.APP: str(OTHERS)}), APP, dead_letters.BODY),
        (by_broker(b"m v=1", "003", media=LINES_TYPE, **{"x-spm-token": "good"}), APP, dead_letters.BODY),
        (
            by_broker(FORGED, "003", media=LINES_TYPE, **{topology.APP: str(OTHERS)}),
            dead_letters.UNKNOWN_APP,
            dead_letters.BODY,
        ),
        (by_broker(WELL.to_bytes(), "003"), APP, dead_letters.MESSAGE),
        (by_broker(WELL.to_bytes(), "bulk"), APP, dead_letters.MESSAGE),
        (by_broker(b"no envelope", "003"), dead_letters.UNKNOWN_APP, dead_letters.TORN),
    ],
    ids=[
        "a worker: an agent's lines",
        "a worker: an agent's forged envelope",
        "a worker: an unknown agent's",
        "a worker: no number",
        "a worker: no app's number",
        "a worker: torn",
        "the broker: an agent's lines",
        "the broker: an agent's forged envelope",
        "the broker: a revoked token's",
        "the broker: a forged header",
        "the broker: lines with a token",
        "the broker: lines with a forged header",
        "the broker: our own",
        "the broker: our own, large",
        "the broker: torn",
    ],
)
def test_a_letter_belongs_to_whom_the_worker_or_the_broker_vouches_for(delivery: Delivery, app: int, kind: int) -> None:
    store = recorded(delivery)
    assert [letter.kind for letter in stored_dead_letters(store, app)] == [kind]
    assert len(list(store.scan("dead", b"", b"\xff" * 64))) == 1
    assert stored_dead_letters(store, OTHERS) == []


@pytest.mark.parametrize(
    ("reason", "size", "cause"),
    [
        ("delivery_limit", 9, "delivered too often"),
        ("rejected", 9, "a worker rejected it"),
        ("rejected", limits.AMQP_PARTITION_BODY_BYTES_MAX + 1, "too large: 262,145 bytes"),
        ("maxlen", 9, "its queue gave it up: maxlen"),
    ],
)
def test_what_the_broker_moved_says_why(reason: str, size: int, cause: str) -> None:
    [letter] = stored_dead_letters(recorded(by_broker(bytes(size), "spm_good.h", reason=reason)), APP)
    assert letter.cause.startswith(cause) or cause in letter.cause


@pytest.mark.parametrize("deaths", [None, [], ["no table"], [{"time": "yesterday"}]], ids=str)
def test_a_word_of_the_broker_that_is_none_still_gives_a_letter(deaths: object) -> None:
    delivery = Delivery(1, 1, topology.DEAD, b"x", "", 0, headers={"x-death": deaths}, key="spm_good.h")
    assert len(stored_dead_letters(recorded(delivery), APP)) == 1


def test_of_a_very_large_body_the_beginning_is_kept_and_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DEAD_BODY_BYTES_MAX", 10)
    store = recorded(by_broker(b"m v=1 5\n" * 9, "spm_good.h"))
    [letter] = stored_dead_letters(store, APP)
    assert (letter.body, letter.description().size) == (b"m v=1 5\nm ", 72)
    [key] = [each.key.hex() for each in dead_letters.newest(store, APP, count=9)]
    assert "only 10 of its 72 bytes" in dead_letter_review.replay(store, APP, [key], lambda e: None).refused[0]


def test_a_body_of_an_agent_is_accepted_anew_as_what_it_would_have_been() -> None:
    store, pushed = (
        recorded(by_worker(b"m,h=a v=1.5\n", **{topology.APP: str(APP), "x-spm-source": "a"})),
        list[Envelope](),
    )
    [shown] = dead_letter_review.list_dead_letters(store, APP, count=9)
    assert (shown.source, shown.excerpt) == ("a", "12 bytes: m,h=a v=1.5.")
    assert dead_letter_review.replay(store, APP, [shown.key], pushed.append).done == 1
    [again] = pushed
    assert (again.app, again.source, again.ts.tolist(), again.values.tolist()) == (APP, "a", [5000], [1.5])


def test_nobody_s_body_of_an_agent_is_never_accepted() -> None:
    store = recorded(by_worker(FORGED, **{topology.APP: "0"}))
    [shown] = dead_letter_review.list_dead_letters(store, dead_letters.UNKNOWN_APP, count=9)
    outcome = dead_letter_review.replay(store, dead_letters.UNKNOWN_APP, [shown.key], lambda e: pytest.fail("accepted"))
    assert "not proven" in outcome.refused[0]


def test_an_envelope_of_a_later_version_is_accepted_and_accounted_once_it_can_be_read() -> None:
    newer = WELL.to_bytes()[:4] + b"\x02" + WELL.to_bytes()[5:]
    store, pushed = recorded(by_worker(newer)), list[Envelope]()
    [key] = [shown.key for shown in dead_letter_review.list_dead_letters(store, dead_letters.UNKNOWN_APP, count=9)]
    assert (
        "unknown envelope version"
        in dead_letter_review.replay(store, dead_letters.UNKNOWN_APP, [key], pushed.append).refused[0]
    )
    assert (pushed, accounts(store)) == ([], [])
    readable = recorded(by_worker(WELL.to_bytes()[:-1]))  # as if this program had learnt to read it since
    [each] = dead_letters.newest(readable, dead_letters.UNKNOWN_APP, count=9)
    torn = dead_letters.decode(each.raw)
    store.put(
        [
            dead_letters.step(
                dead_letters.UNKNOWN_APP,
                7,
                b"n" * 16,
                dead_letters.DeadLetter(dead_letters.TORN, torn.cause, WELL.to_bytes()),
            )
        ]
    )
    [key] = [
        each.key.hex() for each in dead_letters.newest(store, dead_letters.UNKNOWN_APP, count=9) if each.ingest_ms == 7
    ]
    assert dead_letter_review.replay(store, dead_letters.UNKNOWN_APP, [key], pushed.append).done == 1
    assert [e.app for e in pushed] == [APP]
    assert accounts(store) == [(commit_records.REJECTED, [3]), (commit_records.DEAD, [2])]


def test_what_was_dead_and_is_stored_after_all_is_read_once() -> None:
    store = recorded(by_worker(WELL.to_bytes()))
    Writer(store, PlacementTable()).write([WELL])
    assert look(reader(store)) == plain([WELL])
