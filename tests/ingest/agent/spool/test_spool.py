"""The spool keeps order and ids, survives the process, stays within its bound, and counts what it drops."""

import errno
import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.agent.spool import identity
from ingest.agent.spool.records import Message, encode, read
from ingest.agent.spool.spool import Spool
from spm import limits
from spm.errors import LimitExceeded, Refused
from spm.message_ids import split

Opener = Callable[..., Spool]


@pytest.fixture(autouse=True, scope="module")
def _quick_disk() -> Iterator[None]:
    """Nothing here cuts the power: written data can be read again without fsync."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: None)
        yield


def fill(spool: Spool, count: int, size: int = 100, samples: int = 2) -> None:
    for number in range(count):
        spool.append(bytes([number % 256]) * size, samples)


def numbers(messages: list[Message]) -> list[int]:
    """Returns the sequence numbers in the ids of one spool."""
    named = [split(message.message_id) for message in messages]
    assert len({spool for spool, _ in filter(None, named)}) <= 1, "ids of several spools"
    return [number for _, number in filter(None, named)]


def drain(spool: Spool) -> list[Message]:
    messages = []
    while (message := spool.head()) is not None:
        messages.append(message)
        spool.acknowledge(message.sequence)
    return messages


def test_messages_come_out_in_order_with_their_ids_and_bodies(open_spool: Opener) -> None:
    spool = open_spool()
    fill(spool, 50)
    messages = drain(spool)
    assert numbers(messages) == list(range(1, 51))
    assert {message.samples for message in messages} == {2}
    assert messages[7].body == b"\x07" * 100
    assert spool.depth() == 0


def test_head_is_the_same_message_until_it_is_acknowledged(open_spool: Opener) -> None:
    spool = open_spool()
    fill(spool, 2)
    assert spool.head() == spool.head()


def test_a_restart_continues_where_the_last_process_ended(open_spool: Opener) -> None:
    spool = open_spool()
    fill(spool, 10)
    for _ in range(4):
        spool.acknowledge(spool.head().sequence)  # type: ignore[union-attr]
    assert [message.sequence for message in drain(open_spool())] == [5, 6, 7, 8, 9, 10]


def test_sequence_numbers_continue_after_an_empty_restart(open_spool: Opener) -> None:
    spool = open_spool()
    fill(spool, 3)
    drain(spool)
    assert open_spool().append(b"x") == 4


def test_reading_follows_writing_message_by_message(open_spool: Opener) -> None:
    spool = open_spool()
    for number in range(500):
        spool.append(b"x" * 5_000)
        assert [message.sequence for message in drain(spool)] == [number + 1]


def test_a_spool_without_waiting_messages_keeps_no_old_files(open_spool: Opener, tmp_path: Path) -> None:
    spool = open_spool()
    fill(spool, 2_000)
    drain(spool)
    assert len(list((tmp_path / "spool").glob("*.spool"))) <= 1


@pytest.mark.seed("A31", compares="messages of a full spool: those kept, and the count of those dropped")
def test_above_the_bound_the_oldest_are_dropped_and_counted(open_spool: Opener, tmp_path: Path) -> None:
    spool = open_spool(bytes_max=100_000)
    fill(spool, 300, size=1_000)
    assert sum(file.stat().st_size for file in (tmp_path / "spool").glob("*.spool")) <= 100_000
    messages, samples = spool.dropped
    assert numbers(drain(spool)) == list(range(messages + 1, 301))
    assert messages > 0
    assert samples == 2 * messages


@pytest.mark.seed("A31", compares="numbers that a server misses after an outage longer than the spool, with the count")
def test_drops_leave_a_gap_of_exactly_their_number_also_after_a_restart(
    open_spool: Opener, figure: Callable[[str], None]
) -> None:
    spool = open_spool(bytes_max=100_000)
    fill(spool, 20, size=1_000)
    heads = [spool.head()]
    spool.acknowledge(1)
    fill(spool, 200, size=1_000)
    again = open_spool(bytes_max=100_000)
    fill(again, 200, size=1_000, samples=3)
    got = numbers([*filter(None, heads), *drain(again)])
    missing = set(range(got[0], got[-1])) - set(got)
    messages, samples = again.dropped
    assert len(missing) == messages > 0
    assert 2 * messages < samples < 3 * messages, "of both lives"
    assert open_spool(bytes_max=100_000).dropped == (messages, samples)
    figure(f"{messages} messages and {samples} samples dropped of 420, all named")


@pytest.mark.parametrize(
    ("change", "same"),
    [
        pytest.param("closed", True, id="after an orderly end"),
        pytest.param("killed", True, id="after a kill: the system has what was written"),
        pytest.param("cut", False, id="after a power cut: numbers may be forgotten"),
        pytest.param("no identity", False, id="without its name"),
        pytest.param("no mark", False, id="without its mark"),
        pytest.param("damage", False, id="with a damaged file"),
        pytest.param("lost", False, id="with a file that was whole when it was closed"),
    ],
)
def test_a_spool_continues_its_numbers_only_if_none_can_come_twice(
    change: str, same: bool, tmp_path: Path, open_spool: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, spool = tmp_path / "spool", open_spool()
    fill(spool, 3)
    first = spool.head()
    spool.acknowledge(1)
    stored = identity.read(folder)
    spool.close() if change in ("closed", "lost") else None
    monkeypatch.setattr("tests.ingest.agent.conftest.Spool.close", lambda self: self._lock_file.close())
    if change == "cut":
        monkeypatch.setattr(identity, "boot_id", lambda: b"another boot....")
    if change == "no identity":
        identity.remove(folder)
    if change == "no mark":
        (folder / "acknowledged").unlink()
    if change == "lost":
        (folder / f"{1:020d}.spool").write_bytes(b"")
    if change == "damage":
        (folder / f"{1:020d}.spool").open("ab").write(b"half a record")
    open_spool()
    again = identity.read(folder)
    assert first is not None
    assert stored is not None
    assert again is not None
    assert (again.name == stored.name) is same


def test_after_messages_in_memory_the_spool_takes_a_new_name(
    open_spool: Opener, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spool = open_spool()
    fill(spool, 2)
    with monkeypatch.context() as patch:
        patch.setattr(spool, "_write", _full)
        fill(spool, 2)
    before = identity.read(tmp_path / "spool")
    again = open_spool()
    after = identity.read(tmp_path / "spool")
    assert before is not None
    assert after is not None
    assert after.name != before.name, "the numbers 3 and 4 may have been seen"
    assert again.dropped == (2, 4)


@pytest.mark.parametrize("raw", [b"", b"x" * 43, b"\0" * 50])
def test_a_damaged_identity_is_none(raw: bytes, tmp_path: Path) -> None:
    (tmp_path / "identity").write_bytes(raw)
    assert identity.read(tmp_path) is None


def test_records_of_an_earlier_version_are_read_without_their_count() -> None:
    body = (7).to_bytes(8, "big") + b"i" * 16 + b"zipped"
    length = (6).to_bytes(4, "big")
    raw = length + zlib.crc32(body, zlib.crc32(length)).to_bytes(4, "big") + body
    assert list(read(io.BytesIO(raw))) == [Message(7, b"i" * 16, b"zipped", samples=0)]


def test_a_head_that_was_dropped_is_not_served_again(open_spool: Opener) -> None:
    spool = open_spool(bytes_max=100_000)
    fill(spool, 1, size=1_000)
    spool.head()
    fill(spool, 300, size=1_000)
    assert spool.head().sequence == spool.dropped[0] + 1  # type: ignore[union-attr]


def test_a_message_over_the_limit_is_rejected(open_spool: Opener) -> None:
    with pytest.raises(LimitExceeded):
        open_spool().append(b"x" * (limits.AGENT_MESSAGE_BYTES_MAX + 1))


def test_two_agents_cannot_share_a_spool(open_spool: Opener, tmp_path: Path) -> None:
    open_spool()
    with pytest.raises(Refused, match="another agent"):
        Spool(tmp_path / "spool", bytes_max=1_000_000)


def test_without_the_acknowledged_number_messages_are_sent_again_with_their_ids(
    open_spool: Opener, tmp_path: Path
) -> None:
    spool = open_spool()
    fill(spool, 5)
    spool.acknowledge(1)
    (tmp_path / "spool" / "acknowledged").write_bytes(b"nonsense....")
    again = open_spool()
    again.append(b"new")
    *old, new = drain(again)
    assert numbers(old) == [1, 2, 3, 4, 5]
    assert split(new.message_id)[0] != split(old[0].message_id)[0], "nobody knows which numbers were used"  # type: ignore[index]


def test_a_failing_disk_leaves_the_newest_messages_in_memory(
    open_spool: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = open_spool()
    fill(spool, 3)
    with monkeypatch.context() as patch:
        patch.setattr(spool, "_write", _full)
        spool.append(b"in memory")
    spool.append(b"on disk again")
    assert numbers(drain(spool)) == [1, 2, 3, 4, 5]


def test_a_disk_that_fails_for_long_costs_the_oldest(open_spool: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = open_spool()
    monkeypatch.setattr(spool, "_write", _full)
    fill(spool, limits.AGENT_MEMORY_MESSAGES_MAX + 1)
    assert spool.dropped == (1, 2)
    assert spool.depth() == limits.AGENT_MEMORY_MESSAGES_MAX


def test_half_a_record_on_a_full_disk_is_cut_off(open_spool: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = open_spool()
    fill(spool, 2)
    with monkeypatch.context() as patch:
        patch.setattr("ingest.agent.spool.spool.encode", lambda message: encode(message)[:40])
        fill(spool, 1)
    spool.append(b"after")
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
def test_after_a_crash_at_any_byte_the_spool_is_a_complete_prefix(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], settled: int, cut: int, junk: bytes
) -> None:
    folder = tmp_path_factory.mktemp("crash")
    spool = Spool(folder, bytes_max=1_000_000)
    for number, size in enumerate(sizes):
        spool.append(bytes([number]) * size)
    before = list(read((folder / f"{1:020d}.spool").open("rb")))
    for _ in range(min(settled, len(sizes) - 1)):
        spool.acknowledge(spool.head().sequence)  # type: ignore[union-attr]
    spool.close()
    (file,) = folder.glob("*.spool")
    written = file.read_bytes()
    file.write_bytes(written[: min(cut, len(written))] + junk)

    again = Spool(folder, bytes_max=1_000_000)
    again.append(b"after the crash")
    *old, new = drain(again)
    again.close()
    first = min(settled, len(sizes) - 1)
    assert [(message.sequence, message.body) for message in old] == [
        (number + 1, bytes([number]) * sizes[number]) for number in range(first, first + len(old))
    ]
    assert new.message_id not in {message.message_id for message in before}
    assert new.body == b"after the crash"
    space = sum(32 + size for size in sizes)
    if cut >= space:
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
    messages = drain(again)
    again.close()
    assert numbers(messages) == list(range(1, len(messages) + 1))
    assert all(message.body == bytes([number]) * 100 for number, message in enumerate(messages))
    assert again.damaged == 1
