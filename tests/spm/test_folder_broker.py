"""The folder as a broker: nobody takes half a message, or falls over a table of bindings that another left behind."""

import threading
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from kombu.connection import Connection

from spm.folder_broker import Transport

MESSAGES = 400


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("queue", "control"):
        (tmp_path / name).mkdir()
    return tmp_path


def channel(folder: Path) -> Any:
    options = {
        "data_folder_in": str(folder / "queue"),
        "data_folder_out": str(folder / "queue"),
        "control_folder": str(folder / "control"),
    }
    connection: Any = Connection
    return connection("filesystem://localhost", transport=Transport, transport_options=options).channel()


def test_a_reader_beside_a_writer_takes_every_message_whole_and_once(folder: Path) -> None:
    writer, reader = channel(folder), channel(folder)
    thread = threading.Thread(target=lambda: [writer._put("q", {"n": n}) for n in range(MESSAGES)])
    thread.start()
    taken: list[int] = []
    while thread.is_alive() or len(taken) < MESSAGES:
        try:
            taken.append(reader._get("q")["n"])
        except Empty:
            if not thread.is_alive() and not list((folder / "queue").glob("*.msg")):
                break
    assert sorted(taken) == list(range(MESSAGES))


def test_a_damaged_message_is_dropped_and_the_next_one_taken(folder: Path) -> None:
    (folder / "queue" / f"{0:014d}_damaged.q.msg").write_bytes(b"")
    there = channel(folder)
    there._put("q", {"n": 1})
    with pytest.raises(Empty):
        there._get("q")
    assert there._get("q") == {"n": 1}


def test_messages_come_in_the_order_of_their_writing(folder: Path) -> None:
    there = channel(folder)
    for n in range(3):
        there._put("q", {"n": n})
        threading.Event().wait(0.003)
    assert [there._get("q")["n"] for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("left", [b"", b"[[", b"7", b'[["only one"]]', b"\xff"])
def test_a_table_that_a_killed_process_left_behind_is_written_anew(folder: Path, left: bytes) -> None:
    there = channel(folder)
    (folder / "control" / "calls.exchange").write_bytes(left)
    assert there.get_table("calls") == []
    there._queue_bind("calls", "key", "", "q")
    assert [tuple(each) for each in there.get_table("calls")] == [("key", "", "q")]


def test_queues_that_are_bound_at_once_are_all_bound_and_each_once(folder: Path) -> None:
    channels = [channel(folder) for _ in range(4)]

    def bind(number: int) -> None:
        for n in range(25):
            channels[number]._queue_bind("calls", "key", "", f"q{n}")
            channels[number]._queue_bind("calls", "key", "", f"q{n}-{number}")

    threads = [threading.Thread(target=bind, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    queues = sorted(each.queue for each in channels[0].get_table("calls"))
    assert queues == sorted([f"q{n}" for n in range(25)] + [f"q{n}-{k}" for n in range(25) for k in range(4)])
