"""Claims about ingest/writer.py: order of steps, faults at every call, collisions, impossible times, wide batches."""

import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingest.writer import COLLIDED, TIMELESS, WriteBatch, Writer
from spm import limits, wire
from spm.envelope_batch import Envelopes
from spm.errors import AppUnavailable, StoreUnavailable
from spm.limits import HOUR_MS
from spm.store import epochs, keys
from spm.store.backends import open_backend
from spm.store.backends.base import Backend, version_of
from spm.store.backends.memory import MemoryBackend
from spm.store.encoding import blocks
from spm.store.keys import PlacementTable
from spm.store.ledger import commit_records, dead_letters
from spm.store.ledger.balance_hours import read_hours
from spm.store.ledger.commit_records import BatchRows
from spm.store.ledger.outcomes import read_outcomes
from spm.wire import Envelope
from tests.support.faults import Faulty, keys_of
from tests.support.rows import APP, START, bits, envelope, form, number, plain, stored
from tests.support.store_reader import look, reader

VALUE = st.sampled_from([1.0, 2.5, -0.0, number(0x7FF0000000000002), 1e300])
TS = st.tuples(st.integers(0, 30), st.integers(1, 3)).map(lambda p: START + p[0] * HOUR_MS + p[1])
SAMPLES = st.lists(st.tuples(st.integers(0, 8), TS, VALUE), min_size=1, max_size=12)
MESSAGES = st.lists(SAMPLES, min_size=1, max_size=4)


def sent(messages: list[list[tuple[int, int, float]]]) -> list[Envelope]:
    return [
        envelope(m, ms=1000 + i, source=f"h{i % 2}", rejected=i % 2, message_id=bytes([i]) * 16)
        for i, m in enumerate(messages)
    ]


@settings(max_examples=60, deadline=None)
@given(MESSAGES, st.sampled_from([1, 4]))
def test_what_is_written_is_what_is_read(messages: list[list[tuple[int, int, float]]], spread: int) -> None:
    backend = MemoryBackend()
    Writer(backend, PlacementTable.single(spread=spread)).write(sent(messages))
    assert look(reader(backend, spread=spread)) == plain(sent(messages))


def test_the_steps_are_series_then_log_then_account_then_pending() -> None:
    backend = Faulty(MemoryBackend())
    Writer(backend, PlacementTable()).write([envelope([(1, START + 1, 1.0)], rejected=1)])
    assert backend.calls == [
        "get series",
        "get config",
        "check series",
        "put log",
        "put ledger",
        "put pending",
        "get config",
    ]


CALLS = 8  # one more than the seven of a write with a new series


@pytest.mark.parametrize("lost_answer", [False, True], ids=["refused", "done, but the answer lost"])
@pytest.mark.parametrize("fails_at", range(CALLS))
def test_whatever_call_fails_nothing_acked_is_missing_and_nothing_half_written_stays_unknown(
    fails_at: int, lost_answer: bool
) -> None:
    backend = Faulty(MemoryBackend())
    messages = [
        envelope([(s + i, START + h * HOUR_MS + 1, float(s)) for s in (1, 2) for h in (0, 1)], sequence=i, rejected=1)
        for i in (0, 1)
    ]
    writer = Writer(backend, PlacementTable.single(spread=4))
    writer.write(messages[:1])
    backend.calls, backend.fails_at, backend.lost_answer = [], fails_at, lost_answer
    acked = messages[:1]
    try:
        Writer(backend, PlacementTable.single(spread=4)).write(messages[1:])
        acked = messages
    except StoreUnavailable:
        pass
    seen = look(reader(backend.inner, spread=4))
    assert (acked == messages) == (fails_at >= CALLS - 1)
    assert seen in (plain(acked), plain(messages))
    assert rows_without_series(backend.inner) == 0
    backend.fails_at = None
    writer.write(messages[1:])
    assert look(reader(backend.inner, spread=4)) == plain(messages)


def rows_without_series(backend: Backend) -> int:
    """Series of blocks that the dictionary does not know: must never be any (PROTOCOL 3)."""
    known = {keys.parse_series(key)[1] for key in keys_of(backend, "series")}
    stored_blocks = [b for _, row in backend.scan("log", b"", b"\xff" * 30) for b in blocks.LogBlock.from_cells(row)]
    return sum(int(s) not in known for b in stored_blocks for s in b.series)


def test_a_batch_put_again_changes_nothing() -> None:
    backend = MemoryBackend()
    writer = Writer(backend, PlacementTable())
    batch = writer.prepare([envelope([(1, START + 1, 1.0)], rejected=2)])
    writer.commit(batch)
    once = {t: list(backend.scan(t, b"", b"\xff" * 64)) for t in ("log", "pending", "ledger")}
    writer.commit(batch)
    assert {t: list(backend.scan(t, b"", b"\xff" * 64)) for t in once} == once


@given(MESSAGES)
@settings(max_examples=30, deadline=None)
def test_messages_written_twice_in_other_batches_are_counted_once(messages: list[list[tuple[int, int, float]]]) -> None:
    backend = MemoryBackend()
    writer = Writer(backend, PlacementTable())
    writer.write(sent(messages))
    for one in reversed(sent(messages)):
        writer.write([one])
    assert look(reader(backend)) == plain(sent(messages))


def accounts(backend: Backend) -> list[tuple[int, list[int], list[int]]]:
    """(outcome, samples, sequence of the stamps) of every ledger row."""
    rows = [commit_records.decode_ledger_row(row[b"v"]) for _, row in backend.scan("ledger", b"", b"\xff" * 30)]
    return sorted((outcome, c.samples.tolist(), c.messages.sequence.tolist()) for c, outcome, _ in rows)


def letters(backend: Backend) -> list[dead_letters.DeadLetter]:
    return [dead_letters.decode(row[b"v"]) for _, row in backend.scan("dead", b"", b"\xff" * 40)]


@pytest.fixture
def weak(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes of seven values: what nobody could wait for, or what somebody took the trouble to forge."""
    monkeypatch.setattr(wire, "_hash64", lambda raw: zlib.crc32(raw) % 7)


def alive(batch: WriteBatch, sent_: list[Envelope]) -> dict[tuple[bytes, int], int]:
    """The plain answer without the samples that died."""
    gone = {
        (d.envelope.stamp, d.envelope.series.canonical(int(i))) for d in batch.dead for i in d.envelope.series_index
    }
    parts = []
    for e in sent_:
        fine = np.array([(e.stamp, e.series.canonical(int(i))) not in gone for i in e.series_index], np.bool_)
        parts.append(replace(e, series_index=e.series_index[fine], ts=e.ts[fine], values=e.values[fine]))
    return plain(parts)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages=MESSAGES, spread=st.sampled_from([1, 4]))
def test_series_whose_hashes_are_equal_are_never_merged(
    weak: None, messages: list[list[tuple[int, int, float]]], spread: int
) -> None:
    backend = MemoryBackend()
    batch = Writer(backend, PlacementTable.single(spread=spread)).write(sent(messages))
    assert look(reader(backend, spread=spread)) == alive(batch, sent(messages))
    assert batch.samples + sum(d.samples for d in batch.dead) == sum(map(len, messages))


def twins() -> tuple[int, int]:
    """Two series of one metric with one id."""
    return next(
        (a, b) for b in range(200) for a in range(b % 3, b, 3) if wire.series_id(form(a)) == wire.series_id(form(b))
    )


@pytest.mark.parametrize("grouping", [[1, 1], [2]], ids=["in turn", "in one batch"])
def test_a_series_with_a_forged_id_dies_alone_with_a_letter_and_an_account(weak: None, grouping: list[int]) -> None:
    a, b = twins()
    good = envelope([(a, START + 1, 1.0)], sequence=1)
    bad = envelope([(b, START + 1, 9.0), (b, START + 2, 9.5)], sequence=2)
    queue, backend = [good, bad], MemoryBackend()
    for size in grouping:
        batch = Writer(backend, PlacementTable()).write([queue.pop(0) for _ in range(size)])
    assert look(reader(backend)) == plain([good])
    assert [(d.samples, d.cause) for d in batch.dead] == [(2, COLLIDED)]
    assert accounts(backend) == [(commit_records.DEAD, [2], [2])]
    [letter] = letters(backend)
    body = Envelope.from_bytes(letter.body)
    assert (letter.cause, body.values.tolist(), body.series.canonical(0)) == (COLLIDED, [9.0, 9.5], form(b))


def test_a_series_whose_id_is_taken_while_its_batch_waits_dies_alone(weak: None) -> None:
    a, b = twins()
    bad, good = envelope([(b, START + 1, 9.0)], sequence=1), envelope([(202, START + 1, 1.0)], sequence=2)
    backend = MemoryBackend()
    writer = Writer(backend, PlacementTable())
    batch = writer.prepare([bad, good])
    first = envelope([(a, START + 1, 2.0)], sequence=3)
    Writer(backend, PlacementTable()).write([first])
    writer.commit(batch)
    assert look(reader(backend)) == plain([first, good])
    assert [letter.cause for letter in letters(backend)] == [COLLIDED]
    writer.commit(batch)  # its sender repeats it
    assert look(reader(backend)) == plain([first, good])


def test_new_series_and_their_blocks_are_one_transaction(tmp_path: Path) -> None:
    backend = open_backend(f"lmdb://{tmp_path}/store")
    writer = Writer(backend, PlacementTable())
    for sequence in (1, 2):
        with backend.snapshot() as before:
            version = version_of(before)
        writer.write([envelope([(sequence, START + 1, 1.0), (sequence + 5, START + 1, 1.0)], sequence=sequence)])
        with backend.snapshot() as after:
            assert version_of(after) == (version or 0) + 1
    backend.close()


def test_a_forged_series_is_refused_again_by_a_writer_that_knows_no_other(weak: None) -> None:
    a, b = twins()
    backend = stored(envelope([(a, START + 1, 1.0)]))
    writer = Writer(backend, PlacementTable())
    for sequence in (1, 2):
        assert [d.samples for d in writer.write([envelope([(b, START + 1, 9.0)], sequence=sequence)]).dead] == [1]


def test_a_warm_writer_still_compares_forms(weak: None) -> None:
    a, b = twins()
    writer = Writer(MemoryBackend(), PlacementTable())
    writer.write([envelope([(a, START + 1, 1.0)])])
    assert [d.samples for d in writer.write([envelope([(b, START + 1, 9.0)])]).dead] == [1]


@pytest.mark.parametrize("ts", [0, -1, -(10**15), limits.TIME_MAX_MS + 1, 2**62], ids=str)
def test_a_time_no_row_can_hold_kills_its_sample_alone(ts: int) -> None:
    backend = MemoryBackend()
    batch = Writer(backend, PlacementTable()).write(
        [envelope([(1, START + 1, 1.0), (2, ts, 2.0)]), envelope([(3, START + 1, 3.0)], sequence=1)]
    )
    assert [(d.samples, d.cause) for d in batch.dead] == [(1, TIMELESS)]
    assert look(reader(backend)) == {(form(1), START + 1): bits(1.0), (form(3), START + 1): bits(3.0)}
    assert accounts(backend) == [(commit_records.DEAD, [1], [0])]


def test_each_death_has_a_letter_of_its_own(weak: None) -> None:
    a, b = twins()
    backend = stored(envelope([(a, START + 1, 1.0)]))
    twice = [envelope([(b, START + 1, 9.0), (a, -1, 2.0)], sequence=n, ms=5000) for n in (1, 2)]  # sent again
    batch = [death for message in twice for death in Writer(backend, PlacementTable()).write([message]).dead]
    assert len(batch) == 4
    assert sorted(letter.cause for letter in letters(backend)) == sorted(death.cause for death in batch)


def test_of_very_many_dead_samples_several_letters_hold_all_and_the_account_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "DEAD_SAMPLES_MAX", 3)
    backend = MemoryBackend()
    message = envelope([(1, -t, float(t)) for t in range(8)], rejected=2)
    for _ in range(2):  # as after a redelivery: the same rows
        Writer(backend, PlacementTable()).write([message])
    parts = sorted((Envelope.from_bytes(letter.body) for letter in letters(backend)), key=lambda part: part.values[0])
    assert [part.values.tolist() for part in parts] == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0]]
    assert [part.rejected for part in parts] == [2, 0, 0]
    assert {(part.stamp, part.message_id) for part in parts} == {(message.stamp, message.message_id)}
    assert sorted(accounts(backend)) == [(commit_records.REJECTED, [2], [0]), (commit_records.DEAD, [8], [0])]


def test_a_letter_over_the_bytes_of_a_cell_is_cut_by_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DEAD_BODY_BYTES_MAX", 300)
    backend = MemoryBackend()
    message = envelope([(1, START + t, float(t)) for t in range(50)])
    Writer(backend, PlacementTable()).write_dead_letter(message, "a test")
    bodies = [letter.body for letter in letters(backend)]
    assert max(map(len, bodies)) <= 300
    assert sorted(np.concatenate([Envelope.from_bytes(body).values for body in bodies]).tolist()) == list(range(50))


def test_a_batch_encodes_the_list_of_its_rows_once_however_many_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cell names all rows: encoded for each, 300 hours in 16 shards held the only committer for four seconds."""
    calls: list[int] = []
    of = BatchRows.of

    def counting(rows: Sequence[tuple[int, int]]) -> BatchRows:
        calls.append(len(rows))
        return of(rows)

    monkeypatch.setattr(BatchRows, "of", counting)
    message = envelope([(s, START + h * HOUR_MS + 1, 1.0) for s in range(3) for h in range(40)])
    batch = Writer(MemoryBackend(), PlacementTable.single(spread=3)).write([message])
    blocks_put = sum(len(rows) for table, rows in batch.steps if table == "log")
    assert calls == [blocks_put]
    assert blocks_put > 40


def test_bytes_of_a_batch_grow_as_its_rows_do_and_each_is_counted() -> None:
    """Each cell named all rows: 160,000 samples in 2,500 hours and 16 shards became 144 MB."""
    sizes = []
    for hours in (commit_records.BATCH_ROWS_NAMED_MAX + 1, 2 * commit_records.BATCH_ROWS_NAMED_MAX):
        backend = MemoryBackend()
        rng = np.random.default_rng(hours)
        times = START + HOUR_MS * np.sort(rng.choice(4 * hours, hours, replace=False))
        Writer(backend, PlacementTable()).write([envelope([(1, int(time) + 1, 1.0) for time in times])])
        cells = [c for _, row in backend.scan("pending", b"", b"\xff" * 30) for c in row.values()]
        assert len(cells) == hours
        assert {len(commit_records.decode(cell).rows) for cell in cells} == {hours}
        sizes.append(sum(map(len, cells)))
        outcomes = read_outcomes(backend, APP, 0)
        assert (outcomes.stored.tolist(), outcomes.are_settled.tolist()) == ([hours], [True])
    assert sizes[1] < 2.2 * sizes[0]


@pytest.mark.parametrize("kind", ["placement", "no memory"])
def test_what_a_message_is_not_to_blame_for_is_no_dead_letter(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = MemoryBackend()
    writer = Writer(backend, PlacementTable())
    if kind == "placement":
        backend.check_and_put("config", epochs.row_key(APP), epochs.COLUMN, None, b"damaged bytes")
    else:
        monkeypatch.setattr("ingest.writer.encode_part", raise_memory_error)
    with pytest.raises(AppUnavailable):
        writer.write([envelope([(1, START + 1, 1.0)])])
    assert letters(backend) == []


def raise_memory_error(*given: object) -> None:
    raise MemoryError


@pytest.mark.parametrize("ts", [1, limits.TIME_MAX_MS], ids=["the first", "the last"])
def test_the_utmost_times_are_stored(ts: int) -> None:
    backend = MemoryBackend()
    assert Writer(backend, PlacementTable()).write([envelope([(1, ts, 1.0)])]).dead == ()
    assert len(keys_of(backend, "log")) == 1


def test_rejected_lines_are_accounted_once_per_message() -> None:
    backend = MemoryBackend()
    many = [
        envelope([], sequence=1, rejected=4),
        envelope([(1, START + 1, 1.0)], sequence=2, rejected=5),
        envelope([(1, START + 2, 1.0)], sequence=3),
    ]
    Writer(backend, PlacementTable()).write(many)
    assert accounts(backend) == [(commit_records.REJECTED, [4], [1]), (commit_records.REJECTED, [5], [2])]


def test_a_message_without_samples_is_settled_by_a_row_of_its_own() -> None:
    backend = MemoryBackend()
    Writer(backend, PlacementTable()).write([envelope([], sequence=1), envelope([(1, START + 1, 1.0)], sequence=2)])
    assert accounts(backend) == [(commit_records.REJECTED, [0], [1])]


def test_writing_the_outcome_of_a_stamp_again_writes_the_same_row(weak: None) -> None:
    a, b = twins()
    backend = stored(envelope([(a, START + 1, 1.0)]))
    many = [envelope([(b, START + 1, 9.0), (b, -1, 1.0), (3, START + 1, 1.0)], sequence=n, rejected=n) for n in (1, 2)]
    Writer(backend, PlacementTable()).write(many)
    rows = {table: list(backend.scan(table, b"", b"\xff" * 64)) for table in ("ledger", "dead")}
    Writer(backend, PlacementTable()).write(many[1:])
    Writer(backend, PlacementTable()).write(many[::-1])
    assert {table: list(backend.scan(table, b"", b"\xff" * 64)) for table in rows} == rows
    assert [len(table) for table in rows.values()] == [6, 4]


def test_ledger_rows_say_how_many_samples_the_message_had() -> None:
    backend = MemoryBackend()
    Writer(backend, PlacementTable()).write([envelope([(1, START + 1, 1.0), (2, -1, 2.0)], rejected=7)])
    rows = [commit_records.decode_ledger_row(row[b"v"])[0] for _, row in backend.scan("ledger", b"", b"\xff" * 30)]
    assert [None if row.totals is None else row.totals.tolist() for row in rows] == [[2], [2]]


def test_a_dead_message_is_one_dead_letter_and_all_its_samples_count_as_dead() -> None:
    backend, message = MemoryBackend(), envelope([(1, START + 1, 1.0), (2, START + 1, 2.0)], rejected=3, sequence=4)
    for _ in range(2):
        Writer(backend, PlacementTable()).write_dead_letter(message, "nobody can write it")
    [letter] = letters(backend)
    assert (letter.cause, letter.body) == ("nobody can write it", message.to_bytes())
    assert accounts(backend) == [(commit_records.REJECTED, [3], [4]), (commit_records.DEAD, [2], [4])]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3), SAMPLES), min_size=1, max_size=5))
def test_bodies_from_the_queue_are_written_as_their_envelopes_would_be(
    messages: list[tuple[int, list[tuple[int, int, float]]]],
) -> None:
    many = [envelope(m, app=app, ms=1000 + i, source=f"h{i % 2}") for i, (app, m) in enumerate(messages)]
    one_by_one, at_once = MemoryBackend(), MemoryBackend()
    Writer(one_by_one, PlacementTable()).write(many)
    Writer(at_once, PlacementTable()).write(Envelopes.read([e.to_bytes() for e in many]))
    for app in {e.app for e in many}:
        assert (
            look(reader(at_once, app=app))
            == look(reader(one_by_one, app=app))
            == plain([e for e in many if e.app == app])
        )


def test_apps_of_one_batch_do_not_mix() -> None:
    backend = MemoryBackend()
    mine, other = (
        envelope([(1, START + 1, 1.0)]),
        envelope([(1, START + 1, 2.0), (2, START + 1, 3.0)], app=8, sequence=1),
    )
    Writer(backend, PlacementTable()).write([mine, other])
    assert look(reader(backend)) == plain([mine])
    assert look(reader(backend, app=8)) == plain([other])
    units = [
        commit_records.decode(cell) for _, row in backend.scan("pending", b"", b"\xff" * 30) for cell in row.values()
    ]
    assert sorted(c.sample_count for c in units) == [1, 2]


def wide(hours: int, sequence: int, start: int = START) -> Envelope:
    return envelope(
        [(1, start + h * HOUR_MS + 1, float(h)) for h in range(hours)], sequence=sequence, ms=5000 + sequence
    )


def test_messages_that_touch_very_many_hours_are_written_apart() -> None:
    backend = MemoryBackend()
    many = [
        wide(limits.BATCH_HOURS_MAX, 1),
        wide(3, 2),
        wide(limits.BATCH_HOURS_MAX - 1, 3, START + HOUR_MS * 5000),
        wide(2, 4),
    ]
    Writer(backend, PlacementTable()).write(many)
    records = [keys.PendingKey.parse(k) for k in keys_of(backend, "pending")]
    assert len({r.batch for r in records}) == 3
    longest = max(
        len(commit_records.decode(c).rows)
        for _, row in backend.scan("pending", b"", b"\xff" * 30)
        for c in row.values()
    )
    assert longest == limits.BATCH_HOURS_MAX
    assert look(reader(backend), end=START + HOUR_MS * 9000) == plain(many)


def test_a_large_block_is_cut_into_cells_and_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks.LogBlock.to_cells, "__defaults__", (7,))
    backend = MemoryBackend()
    sent_ = [envelope([(s, START + t + 1, float(s * t)) for s in range(4) for t in range(9)])]
    Writer(backend, PlacementTable()).write(sent_)
    [(_, row)] = backend.scan("log", b"", b"\xff" * 30)
    assert len(row) == 6
    assert look(reader(backend)) == plain(sent_)


def test_no_cell_of_the_largest_message_is_refused_by_hbase() -> None:
    count = limits.LOG_CELL_SAMPLES_MAX + 5
    rng = np.random.default_rng(1)
    every = np.arange(count, dtype=np.uint64) << np.uint64(40)
    one = np.ones(1, np.int64)
    messages = blocks.Messages(one, one, one, np.zeros(1, np.int32), ("h",))
    counts, message = np.ones(count, np.int32), np.zeros(count, np.int32)
    ts, values = rng.integers(START, START + HOUR_MS, count), rng.normal(size=count)
    block = blocks.LogBlock(messages, rng.permutation(every), every, counts, message, ts, values)
    cells = block.to_cells()
    assert len(cells) == 2
    assert max(map(len, cells.values())) < limits.CELL_BYTES_MAX


def test_an_empty_batch_writes_nothing() -> None:
    backend = Faulty(MemoryBackend())
    assert Writer(backend, PlacementTable()).write([]).samples == 0
    assert [c for c in backend.calls if c != "put"] == []


def test_the_app_of_an_envelope_is_the_only_one_in_its_rows() -> None:
    backend = MemoryBackend()
    Writer(backend, PlacementTable.single(spread=4)).write(
        [envelope([(s, START + 1, 1.0) for s in range(9)], rejected=1)]
    )
    apps = {keys.LogKey.parse(k).app for k in keys_of(backend, "log")}
    apps |= {keys.PendingKey.parse(k).app for k in keys_of(backend, "pending")}
    apps |= {int.from_bytes(k[1:5], "big") for k in keys_of(backend, "series")}
    apps |= {int.from_bytes(k[:4], "big") for k in keys_of(backend, "ledger")}
    assert apps == {APP}


def test_each_hour_has_the_samples_of_messages_that_waited_together_for_long() -> None:
    backend, hour = MemoryBackend(), START // HOUR_MS
    waits_ms = [0, 5 * 60_000, 55 * 60_000, 3 * HOUR_MS, 3 * HOUR_MS]
    messages = [envelope([(1, START + 1, 1.0)], ms=START + wait, sequence=i) for i, wait in enumerate(waits_ms)]
    Writer(backend, PlacementTable()).write(messages)
    for item in list(commit_records.scan(backend, APP, list(range(16)))):
        commit, _, batch = commit_records.decode_ledger_row(item.cell, blocks.PENDING)
        row = commit_records.encode(commit, blocks.LEDGER, commit_records.STORED, batch)
        backend.put([("ledger", [(commit_records.ledger_key(item.key.log(item.hour)), {commit_records.COLUMN: row})])])
        backend.delete("pending", [(item.key.to_bytes(), None)])
    read = [next(read_hours(backend, APP, number, number)) for number in range(hour, hour + 4)]  # each alone
    assert [int(each.stored.sum()) for each in read] == [3, 0, 0, 2]
