"""The spool keeps order and ids, survives the process, stays within its bound, and counts what it drops."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.agent.records import Message, encode
from ingest.agent.spool import Spool
from spm import limits
from spm.errors import LimitExceeded, Refused

Opener = Callable[..., Spool]


def message_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def fill(spool: Spool, count: int, size: int = 100) -> None:
    for number in range(count):
        spool.append(message_id(number), bytes([number % 256]) * size)


def drain(spool: Spool) -> list[Message]:
    taken = []
    while (message := spool.head()) is not None:
        taken.append(message)
        spool.settle(message.sequence)
    return taken


def test_messages_come_out_in_order_with_their_ids_and_bodies(open_spool: Opener) -> None:
    spool = open_spool()
    fill(spool, 50)
    taken = drain(spool)
    assert [message.message_id for message in taken] == [message_id(number) for number in range(50)]
    assert taken[7].body == b"\x07" * 100
    assert spool.depth() == 0


def test_head_is_the_same_message_until_it_is_settled(open_spool: Opener) -> None:
    spool = open_spool()
    fill(spool, 2)
    assert spool.head() == spool.head()


def test_a_restart_goes_on_where_the_last_process_was(open_spool: Opener) -> None:
    spool = open_spool()
    fill(spool, 10)
    for _ in range(4):
        spool.settle(spool.head().sequence)  # type: ignore[union-attr]
    assert [message.sequence for message in drain(open_spool())] == [5, 6, 7, 8, 9, 10]


def test_sequence_numbers_go_on_after_an_empty_restart(open_spool: Opener) -> None:
    spool = open_spool()
    fill(spool, 3)
    drain(spool)
    assert open_spool().append(message_id(9), b"x") == 4


def test_reading_follows_writing_message_by_message(open_spool: Opener) -> None:
    spool = open_spool()
    for number in range(500):
        spool.append(message_id(number), b"x" * 5_000)
        assert [message.sequence for message in drain(spool)] == [number + 1]


def test_a_settled_spool_keeps_no_old_files(open_spool: Opener, tmp_path: Path) -> None:
    spool = open_spool()
    fill(spool, 2_000)
    drain(spool)
    assert len(list((tmp_path / "spool").glob("*.spool"))) <= 1


@pytest.mark.seed("A31", compares="messages of a full spool: those kept, and the count of those dropped")
def test_above_the_bound_the_oldest_go_and_are_counted(open_spool: Opener, tmp_path: Path) -> None:
    spool = open_spool(bytes_max=100_000)
    fill(spool, 300, size=1_000)
    assert sum(file.stat().st_size for file in (tmp_path / "spool").glob("*.spool")) <= 100_000
    kept = [message.sequence for message in drain(spool)]
    assert kept == list(range(spool.dropped + 1, 301))
    assert spool.dropped > 0


def test_a_head_that_was_dropped_is_not_served_again(open_spool: Opener) -> None:
    spool = open_spool(bytes_max=100_000)
    fill(spool, 1, size=1_000)
    spool.head()
    fill(spool, 300, size=1_000)
    assert spool.head().sequence == spool.dropped + 1  # type: ignore[union-attr]


def test_a_message_over_the_limit_is_refused(open_spool: Opener) -> None:
    with pytest.raises(LimitExceeded):
        open_spool().append(message_id(1), b"x" * (limits.AGENT_MESSAGE_BYTES_MAX + 1))


def test_two_agents_cannot_share_a_spool(open_spool: Opener, tmp_path: Path) -> None:
    open_spool()
    with pytest.raises(Refused, match="another agent"):
        Spool(tmp_path / "spool", bytes_max=1_000_000)


def test_a_lost_mark_means_sending_again_under_the_same_ids(open_spool: Opener, tmp_path: Path) -> None:
    spool = open_spool()
    fill(spool, 5)
    spool.settle(1)
    (tmp_path / "spool" / "acknowledged").write_bytes(b"nonsense....")
    assert [message.message_id for message in drain(open_spool())] == [message_id(number) for number in range(5)]


def test_a_disk_that_refuses_leaves_the_newest_messages_in_memory(
    open_spool: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = open_spool()
    fill(spool, 3)
    with monkeypatch.context() as patch:
        patch.setattr(spool, "_write", _full)
        spool.append(message_id(3), b"in memory")
    spool.append(message_id(4), b"on disk again")
    assert [message.message_id for message in drain(spool)] == [message_id(number) for number in range(5)]


def test_a_disk_that_refuses_for_long_costs_the_oldest(open_spool: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = open_spool()
    monkeypatch.setattr(spool, "_write", _full)
    fill(spool, limits.AGENT_MEMORY_MESSAGES_MAX + 1)
    assert spool.dropped == 1
    assert spool.depth() == limits.AGENT_MEMORY_MESSAGES_MAX


def test_half_a_record_on_a_full_disk_is_cut_off(open_spool: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = open_spool()
    fill(spool, 2)
    with monkeypatch.context() as patch:
        patch.setattr("ingest.agent.spool.encode", lambda message: encode(message)[:40])
        fill(spool, 1)
    spool.append(message_id(8), b"after")
    again = open_spool()
    assert again.damaged == 0
    assert len(drain(again)) == 3  # the one in memory went with the process, all others are whole


def _full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "no space left")


@settings(max_examples=150, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 400), min_size=1, max_size=30),
    settled=st.integers(0, 30),
    cut=st.integers(0, 20_000),
    junk=st.binary(max_size=50),
)
def test_after_a_crash_at_any_byte_the_spool_is_a_whole_prefix(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], settled: int, cut: int, junk: bytes
) -> None:
    folder = tmp_path_factory.mktemp("crash")
    spool = Spool(folder, bytes_max=1_000_000)
    for number, size in enumerate(sizes):
        spool.append(message_id(number), bytes([number]) * size)
    for _ in range(min(settled, len(sizes) - 1)):
        spool.settle(spool.head().sequence)  # type: ignore[union-attr]
    spool.close()
    (file,) = folder.glob("*.spool")
    written = file.read_bytes()
    file.write_bytes(written[: min(cut, len(written))] + junk)

    again = Spool(folder, bytes_max=1_000_000)
    again.append(message_id(99), b"after the crash")
    *old, new = drain(again)
    again.close()
    first = min(settled, len(sizes) - 1)
    assert [(message.message_id, message.body) for message in old] == [
        (message_id(number), bytes([number]) * sizes[number]) for number in range(first, first + len(old))
    ]
    assert new.body == b"after the crash"
    room = sum(32 + size for size in sizes)
    if cut >= room:
        assert len(old) == len(sizes) - first


@settings(max_examples=100, deadline=None)
@given(place=st.integers(0, 10_000), flip=st.integers(1, 255))
def test_a_flipped_bit_is_never_delivered(tmp_path_factory: pytest.TempPathFactory, place: int, flip: int) -> None:
    folder = tmp_path_factory.mktemp("flip")
    spool = Spool(folder, bytes_max=1_000_000)
    fill(spool, 20)
    spool.close()
    (file,) = folder.glob("*.spool")
    damaged = bytearray(file.read_bytes())
    damaged[place % len(damaged)] ^= flip
    file.write_bytes(bytes(damaged))
    again = Spool(folder, bytes_max=1_000_000)
    taken = drain(again)
    again.close()
    assert [message.message_id for message in taken] == [message_id(number) for number in range(len(taken))]
    assert all(message.body == bytes([number]) * 100 for number, message in enumerate(taken))
    assert again.damaged == 1
