"""Claims about ``AgentMessageAcceptor.accept_many``: each delivery gets what it gets alone, whatever is beside it."""

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BytesIO

import pytest
from django.db import OperationalError
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.accept import identity
from ingest.accept.admission import Admission
from ingest.accept.identity import Sender, message_id_of, period_of, source_of, way_of
from ingest.http.body import read_body
from ingest.protocols import by_content
from ingest.protocols.by_content import QueuedBody
from ingest.protocols.influx import joined
from ingest.routing import AGENTS, LINES_TYPE, PERIOD_HEADER, SENDER_HEADER, SOURCE_HEADER, TOKEN_HEADER
from ingest.senders import principals
from ingest.transport.delivery import Delivery
from ingest.worker import agent_messages
from ingest.worker.agent_messages import AgentMessageAcceptor
from spm.accounts import tokens
from spm.accounts.quotas import Quota
from spm.accounts.tokens import Principal
from spm.clock import FakeClock
from spm.errors import BadMessage, StoreUnavailable
from spm.limits import CONSUME_JOIN_BYTES, HOUR_MS, JOINED_BODY_BYTES_MAX, MESSAGE_HOURS_MAX, MESSAGE_ID_CHARS_MAX
from spm.store.backends.memory import MemoryBackend
from spm.store.ledger import watermarks
from spm.store.ledger.quota import QUEUED
from spm.wire import Envelope, Parsed
from tests.support.acceptors import silent_announcer
from tests.support.messages import message

NOW_MS = 1_700_000_000_000
ROOMY, NARROW, UNREADABLE = 1, 2, 3  # apps: with room, with room for three series, with a quota nobody can read
TOKENS = {"roomy": ROOMY, "narrow": NARROW, "unreadable": UNREADABLE}
RECORDED = list[tuple[object, ...]]()
VALUE_LIST = {"values": [1], "dsnames": ["value"], "time": NOW_MS / 1000, "host": "h", "plugin": "load", "type": "load"}
HOURS = "".join(f"m v={hour} {NOW_MS - hour * HOUR_MS}\n" for hour in range(MESSAGE_HOURS_MAX + 1)).encode()
BODIES = {
    "milliseconds": f"cpu,host=a user=1i,idle=0.5 {NOW_MS}\ncpu,host=b user=2i {NOW_MS}\n".encode(),
    "nanoseconds": f"cpu,host=a user=1i,idle=0.5 {NOW_MS}000000\n".encode(),
    "seconds": f"cpu,host=a user=3i {NOW_MS // 1000}\n".encode(),
    "timeless": b"cpu,host=a user=1i\n",
    "many series": "".join(f"m,n={n} v={n} {NOW_MS}\n" for n in range(9)).encode(),
    "one bad line": f"bad line\ncpu,host=a user=1i {NOW_MS}\n".encode(),
    "bad lines alone": b"bad line\nworse\n",
    "text field": b'cpu,host=a user=1i,note="\xc3\xa4"\n',
    "no text": b"cpu,host=\xff user=1i\n\xff\xfe",
    "empty": b"",
    "too many hours": HOURS,
    "large": f"cpu,host=a user=1i {NOW_MS}\n".encode() * (JOINED_BODY_BYTES_MAX // 30),
    "collectd": json.dumps([VALUE_LIST]).encode(),
    "collectd, damaged": b'[{"values": [1}]',
    "columns": message(1).to_bytes(),
    "columns, damaged": message(1).to_bytes()[:-1],
}


class Quotas:
    """The quotas of the apps."""

    def __call__(self, app: int) -> Quota:
        if app == UNREADABLE:
            raise OperationalError("locked")
        return Quota(series=3 if app == NARROW else 1_000, samples_per_s=10**9)


def principal(token: str, scope: str) -> Principal | None:
    """Stands for a look into the database."""
    assert scope == "ingest"
    if token == "locked":
        raise OperationalError("locked")
    return Principal(TOKENS[token], 1, 70 + TOKENS[token], frozenset({scope})) if token in TOKENS else None


@pytest.fixture(autouse=True, scope="module")
def known_senders() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agent_messages, "close_old_connections", lambda: None)  # there are none
        patch.setattr(tokens, "authenticate", principal)
        patch.setattr(principals, "of_token_id", principal)
        patch.setattr(agent_messages, "record_accepted", lambda parsed, *rest: RECORDED.append((shown(parsed), *rest)))
        patch.setattr(identity, "random_bytes", bytes)
        yield


@dataclass
class Process:
    """A consuming process over a store of its own."""

    store: MemoryBackend = field(default_factory=MemoryBackend)
    clock: FakeClock = field(default_factory=lambda: FakeClock(NOW_MS))

    def __post_init__(self) -> None:
        self.announcer = silent_announcer(self.clock, self.store)
        self.admission = Admission(MemoryBackend(), self.clock, Quotas())
        self.acceptor = AgentMessageAcceptor(self.announcer, self.clock, self.admission)

    def together(self, deliveries: Sequence[Delivery]) -> tuple[list[object], list[tuple[object, ...]]]:
        """The results of deliveries that are accepted together, and what is recorded of them."""
        RECORDED.clear()
        return [described(result) for result in self.acceptor.accept_many(deliveries)], [*RECORDED]

    def one_by_one(self, deliveries: Sequence[Delivery]) -> tuple[list[object], list[tuple[object, ...]]]:
        """The same by the steps of one delivery after the other, until one must wait for the store."""
        results, recorded = list[object](), list[tuple[object, ...]]()
        for delivery in deliveries:
            try:
                envelope, *about = self._accept(delivery)
            except (StoreUnavailable, OperationalError) as error:
                unavailable = StoreUnavailable(f"the database does not answer: {error}")
                return results + [described(unavailable)] * (len(deliveries) - len(results)), recorded
            except Exception as error:
                results.append(described(error))
            else:
                results.append(described(envelope))
                recorded.append((*about,))
        return results, recorded

    def _accept(self, delivery: Delivery) -> tuple[Envelope | None, object, Sender, int, int | None]:
        headers, by_key = delivery.headers, delivery.exchange == AGENTS
        token, _, source_of_key = delivery.key.partition(".") if by_key else (str(headers[TOKEN_HEADER]), "", "")
        if by_key and delivery.user_id not in ("", token):
            raise BadMessage("the routing key is another sender's", got=delivery.user_id, wanted=token)
        known = principal(token, "ingest")
        if known is None:
            if by_key:
                raise BadMessage("no valid token", got=token, wanted="a routing key that begins with a token's id")
            raise BadMessage("no valid token", wanted=f"the header {TOKEN_HEADER}, with the scope ingest")
        source = source_of(str(headers.get(SOURCE_HEADER) or source_of_key), known.token_id)
        body = read_body(BytesIO(delivery.body), encoding=delivery.encoding, length=len(delivery.body))
        parsed = by_content.parse(body, delivery.content_type, NOW_MS)
        kind = QueuedBody(body, "").protocol.name
        unit = {"collectd": "s", "columns": "ms"}.get(kind, "ms" if delivery.content_type == LINES_TYPE else "ns")
        parsed, envelope = self.admission.admit(known.app_id, parsed, unit), None
        if len(parsed.ts) or parsed.rejected:
            about = {"given": delivery.message_id, "token_id": known.token_id, "path": "amqp"}
            envelope = self.announcer.stamp_message(
                app=known.app_id,
                source=source,
                parsed=parsed,
                message_id=message_id_of(parsed, body=body, **about),  # type: ignore[arg-type]
            )
        way = way_of(kind, str(headers.get(SENDER_HEADER, "")))
        return (
            envelope,
            shown(parsed),
            Sender(known.app_id, source, way, period_of(str(headers[PERIOD_HEADER]))),
            NOW_MS,
            None if envelope is None else envelope.stamp.ms,
        )


def shown(parsed: Parsed | Envelope) -> tuple[object, ...]:
    """Samples and what was rejected, in a form that can be compared."""
    forms = [parsed.series.canonical(int(number)) for number in parsed.series_index]
    rejections = parsed.rejections if isinstance(parsed, Parsed) else ()
    return forms, parsed.ts.tolist(), parsed.values.tolist(), parsed.rejected, rejections


def described(result: Envelope | Exception | None) -> object:
    """A result in a form that can be compared."""
    if isinstance(result, Exception):
        return type(result), str(result)
    if result is None:
        return None
    return result.app, result.source, result.stamp, result.message_id, shown(result)


def delivery(
    token: str = "roomy", body: bytes = BODIES["milliseconds"], *, by_key: bool = False, **changes: object
) -> Delivery:
    """An agent's message, with its token in a header or in its key."""
    headers = {TOKEN_HEADER: token, SOURCE_HEADER: "", PERIOD_HEADER: "30", SENDER_HEADER: "spm-agent/1.0"}
    exchange, key = (AGENTS, f"{token}.web-1") if by_key else ("", "003")
    fields: dict[str, object] = {"message_id": "", "content_type": LINES_TYPE, "encoding": "", "user_id": ""}
    fields |= changes
    if fields["encoding"] == "gzip":
        body = gzip.compress(body, mtime=0)
    return Delivery(1, 1, "q", body, arrived_ms=0, headers=headers, exchange=exchange, key=key, **fields)  # type: ignore[arg-type]


def any_delivery(senders: Sequence[str]) -> st.SearchStrategy[Delivery]:
    return st.builds(
        delivery,
        st.sampled_from(senders),
        st.sampled_from(list(BODIES.values())),
        by_key=st.booleans(),
        content_type=st.sampled_from([LINES_TYPE, "text/plain"]),
        encoding=st.sampled_from(["", "", "gzip", "br", "snappy"]),
        message_id=st.sampled_from(["", "", "ab" * 16, "x" * (MESSAGE_ID_CHARS_MAX + 1)]),
        user_id=st.sampled_from(["", "", "", "somebody"]),
    )


@pytest.mark.parametrize("bytes_at_once", [1, 300, CONSUME_JOIN_BYTES])
@settings(max_examples=120, deadline=None)
@given(st.lists(any_delivery(["roomy", "roomy", "narrow", "nobody", "n\0body"]), max_size=12))
def test_each_delivery_gets_what_it_gets_alone(bytes_at_once: int, deliveries: list[Delivery]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agent_messages, "CONSUME_JOIN_BYTES", bytes_at_once)
        assert Process().together(deliveries) == Process().one_by_one(deliveries)


@settings(max_examples=60, deadline=None)
@given(st.lists(any_delivery(["roomy", "roomy", "narrow", "unreadable", "locked"]), max_size=8))
def test_what_the_store_keeps_waiting_holds_all_behind_it_and_none_before_it(deliveries: list[Delivery]) -> None:
    assert Process().together(deliveries) == Process().one_by_one(deliveries)


@pytest.mark.parametrize("place", [0, 3, 6])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_an_odd_body_touches_no_other_wherever_it_stands(body: bytes, place: int) -> None:
    others = [delivery(body=BODIES["milliseconds"].replace(b"1i", b"%di" % number)) for number in range(6)]
    Process().together(others)  # their series are known from here on
    deliveries = [*others[:place], delivery(body=body, content_type=""), *others[place:]]
    results, _ = Process().together(deliveries)
    assert results == Process().one_by_one(deliveries)[0]
    values = [result[4][2] for result in results[:place] + results[place + 1 :] if isinstance(result, tuple)]
    assert values == [[float(number), 0.5, 2.0] for number in range(6)]


def test_a_database_that_refuses_no_message_never_hears_a_key_it_could_choke_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def choke(token_id: str, scope: str) -> None:
        raise OperationalError(f"a text with NUL: {token_id!r} {scope}")

    monkeypatch.setattr(principals, "of_token_id", choke)
    odd, good = delivery("spm\0", by_key=True), delivery()
    first, second = Process().acceptor.accept_many([odd, good])
    assert (type(first), type(second)) == (BadMessage, Envelope)
    assert Process().acceptor.app_of(odd) is None


def test_bodies_are_decompressed_only_as_far_as_they_are_accepted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = list[list[int]]()
    parse_many = by_content.parse_many

    def count(bodies: Sequence[QueuedBody], now_ms: int) -> list[Parsed | Exception]:
        groups.append([len(body.raw) for body in bodies])
        return parse_many(bodies, now_ms)

    monkeypatch.setattr(by_content, "parse_many", count)
    monkeypatch.setattr(agent_messages, "CONSUME_JOIN_BYTES", 1_000)
    body = BODIES["milliseconds"] * 20
    results = Process().acceptor.accept_many([delivery(body=body, encoding="gzip") for _ in range(3)])
    assert [type(result) for result in results] == [Envelope] * 3
    assert groups == [[len(body)]] * 3
    assert len(gzip.compress(body)) * 3 < 1_000 < len(body)


def broken(*_: object, **__: object) -> None:
    raise ZeroDivisionError("ours")


@pytest.mark.parametrize(
    "breaks",
    [
        pytest.param(lambda patch: patch.setattr(Admission, "admit_many", broken), id="admission"),
        pytest.param(lambda patch: patch.setattr(joined, "parse_many", broken), id="parsing"),
        pytest.param(lambda patch: patch.setattr(agent_messages, "record_accepted", broken), id="records"),
    ],
)
def test_a_fault_of_ours_in_what_is_done_together_costs_no_message(
    breaks: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    deliveries = [delivery(), delivery(body=b"bad line"), delivery("narrow"), delivery(encoding="br")]
    wanted, _ = Process().one_by_one(deliveries)
    breaks(monkeypatch)
    assert Process().together(deliveries)[0] == wanted


def test_nothing_is_counted_of_what_was_not_stamped() -> None:
    process = Process()
    deliveries = [delivery(), delivery(encoding="br"), delivery(body=b"bad line"), delivery("locked"), delivery()]
    results = process.acceptor.accept_many(deliveries)
    kinds = [type(result).__name__ for result in results]
    assert kinds == ["Envelope", "UnknownEncoding", "Envelope", "StoreUnavailable", "StoreUnavailable"]
    process.announcer.announce()
    [row] = [each.newest for each in watermarks.read(process.store, ROOMY).values()]
    assert row is not None
    assert (row.messages, row.rejected, row.open_messages) == (2, 1, 2)


def test_an_app_far_over_its_rate_has_messages_rejected_and_counted_and_no_other_app_has() -> None:
    """A body of 60 samples a second, at a rate of ten: an hour's worth is taken at once, then ten a second."""
    process, body = Process(), "".join(f"m v={n} {NOW_MS - n}\n" for n in range(60)).encode()
    allowed = Quota(samples_per_s=10)
    process.admission = Admission(process.store, process.clock, lambda app: allowed, QUEUED)
    process.acceptor = AgentMessageAcceptor(process.announcer, process.clock, process.admission)
    taken = rejected = 0
    for _ in range(1_200):
        [result] = process.acceptor.accept_many([delivery(body=body)])
        assert isinstance(result, Envelope)
        assert len(result) + result.rejected == 60
        taken, rejected = taken + len(result), rejected + result.rejected
        process.clock.advance(1_000)
    assert abs(taken - 10 * (3_600 + 1_200)) <= 120
    assert taken + rejected == 60 * 1_200
    over, other = process.acceptor.accept_many([delivery(body=body), delivery("narrow", body)])
    assert [len(each) for each in (over, other) if isinstance(each, Envelope)] == [0, 60]
    RECORDED.clear()
    process.acceptor.accept_many([delivery(body=body)])
    assert "than its rate allows" in str(RECORDED)


def test_a_backlog_of_an_outage_at_the_apps_own_rate_is_taken_as_fast_as_it_comes() -> None:
    process, body = Process(), "".join(f"m v={n} {NOW_MS - n}\n" for n in range(100)).encode()
    admission = Admission(process.store, process.clock, lambda app: Quota(samples_per_s=10), QUEUED)
    acceptor = AgentMessageAcceptor(process.announcer, process.clock, admission)
    results = [acceptor.accept_many([delivery(body=body)])[0] for _ in range(360)]  # of an hour, in no time
    assert sum(len(each) for each in results if isinstance(each, Envelope)) == 36_000
