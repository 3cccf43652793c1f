"""The HBase back end where HBase differs from other stores: races, restarts, forks, sizes."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import happybase
import pytest

from spm import limits
from spm.errors import LimitExceeded, StoreUnavailable
from spm.store import keys
from spm.store.backends import open_backend
from spm.store.backends.base import Backend
from spm.store.backends.hbase import HBaseBackend
from tests.servers.java.hbase import HBase

pytestmark = pytest.mark.real
LATE = b"\xff" * 30


def key(number: int) -> bytes:
    return number.to_bytes(21, "big")


@pytest.fixture
def url(hbase_url: str, tmp_path: Path) -> str:
    return f"{hbase_url}/{tmp_path.name}"


@pytest.fixture
def backend(url: str) -> Iterator[HBaseBackend]:
    created = open_backend(url)
    assert isinstance(created, HBaseBackend)
    yield created
    created.close()


def test_a_table_that_several_make_at_once_is_there_for_all(url: str) -> None:
    def work(number: int) -> None:
        own = open_backend(url)
        own.put([("pending", [(key(number), {b"a": b"1"})])])
        own.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert [k for k, _ in open_backend(url).scan("pending", b"", LATE)] == [key(n) for n in range(4)]


def test_tables_made_beforehand_are_cut_at_every_shard_and_compressed_where_it_helps(
    hbase: HBase, tmp_path: Path
) -> None:
    created = hbase.make_tables(tmp_path.name)
    assert created == list(keys.TABLES)
    connection = happybase.Connection("127.0.0.1", urlsplit(hbase.url).port, timeout=60_000)
    for table, regions, codec in (("log", 16, "NONE"), ("pending", 16, "ZSTD"), ("config", 1, "ZSTD")):
        stored = connection.table(f"{tmp_path.name}_{table}")
        assert [r["start_key"] for r in stored.regions()] == [b"", *(bytes([n]) for n in range(1, regions))]
        assert stored.families()[b"d"]["compression"] == codec.encode()
    backend = open_backend(f"{hbase.url}/{tmp_path.name}")
    held_rows = [(bytes([shard]) + key(shard)[1:], {b"a": b"1"}) for shard in range(16)]
    backend.put([("pending", held_rows)])
    assert list(backend.scan("pending", b"", LATE)) == held_rows
    assert hbase.make_tables(tmp_path.name) == [], "what is there stays as it is"


def test_threads_share_a_backend_without_mixing_answers(backend: Backend) -> None:
    backend.put([("pending", [(key(n), {b"a": b"%d" % n}) for n in range(50)])])

    def work(number: int) -> list[object]:
        return [backend.get("pending", [key(number)]) for _ in range(20)]

    with ThreadPoolExecutor(8) as pool:
        for number, answers in enumerate(pool.map(work, range(50))):
            assert answers == [[{b"a": b"%d" % number}]] * 20


def test_a_scan_of_rows_of_very_different_sizes_is_whole(backend: Backend) -> None:
    sizes = [10, 500_000, 10, 3_000_000, *[10] * 600, 2_000_000]
    rows = [(n.to_bytes(25, "big"), {b"v": bytes([n % 251]) * size}) for n, size in enumerate(sizes)]
    backend.put([("log", rows)])
    assert list(backend.scan("log", b"", LATE)) == rows
    assert backend.get("log", [k for k, _ in rows]) == [cells for _, cells in rows]


@pytest.mark.parametrize(("start", "stop"), [(2, 2), (3, 2)], ids=["empty", "backwards"])
def test_a_range_of_nothing_holds_nothing(backend: Backend, start: int, stop: int) -> None:
    backend.put([("pending", [(key(n), {b"a": b"1"}) for n in range(5)])])
    assert list(backend.scan("pending", key(start), key(stop))) == []


def test_a_cell_that_hbase_would_refuse_is_over_the_limit(backend: Backend) -> None:
    with pytest.raises(LimitExceeded, match="too large"):
        backend.put([("pending", [(key(1), {b"a": bytes(limits.CELL_BYTES_MAX + 1)})])])


def test_many_series_of_two_processes_at_once_have_one_winner_each(url: str) -> None:
    answers: dict[bytes, list[bytes | None]] = {}

    def work(name: bytes) -> None:
        own = open_backend(url)
        answers[name] = own.check_and_put_many("series", b"c", [(key(n), name) for n in range(500)])
        own.close()

    threads = [threading.Thread(target=work, args=(name,)) for name in (b"first", b"second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for mine, other in zip(answers[b"first"], answers[b"second"], strict=True):
        assert (mine, other) in {(None, b"first"), (b"second", None)}


def test_a_forked_child_does_not_cut_its_parent_off(backend: Backend) -> None:
    backend.put([("pending", [(key(1), {b"a": b"1"})])])
    child = os.fork()
    if child == 0:  # the child's own view, then a normal end, with everything thrown away
        fine = backend.get("pending", [key(1)]) == [{b"a": b"1"}]
        backend.close()
        os._exit(0 if fine else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert backend.check_and_put("pending", key(2), b"a", None, b"1"), "a call that is never repeated"


def test_a_put_that_breaks_off_reports_the_unconfirmed_part(
    backend: HBaseBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = [(n.to_bytes(25, "big"), {b"v": bytes(limits.HBASE_CALL_BYTES_MAX // 2)}) for n in range(5)]
    last = [(key(1), {b"a": b"1"})]
    calls: list[int] = []
    mutate = backend._mutate

    def breaking(name: bytes, batch: list[object]) -> None:
        calls.append(len(batch))
        if len(calls) == 3:
            raise StoreUnavailable("broken")
        mutate(name, batch)

    monkeypatch.setattr(backend, "_mutate", breaking)
    with pytest.raises(StoreUnavailable) as broken:
        backend.put([("log", first), ("pending", last)])
    confirmed = sum(calls[:2])
    assert broken.value.rest == [("log", first[confirmed:]), ("pending", last)]
    assert len(list(backend.scan("log", b"", LATE, keys_only=True))) == confirmed > 0


def test_nobody_there_is_unavailable_and_not_forever() -> None:
    nobody = HBaseBackend("127.0.0.1", 1, prefix="x")
    with pytest.raises(StoreUnavailable, match="HBase cannot be reached"):
        nobody.get("pending", [key(1)])


def test_the_gateway_may_be_started_again_under_a_backend(own_hbase: HBase) -> None:
    backend = open_backend(f"{own_hbase.url}/gateway")
    backend.put([("pending", [(key(1), {b"a": b"1"})])])
    own_hbase.process("thrift").kill()
    own_hbase.start()
    assert backend.get("pending", [key(1)]) == [{b"a": b"1"}]
    backend.close()


def test_a_check_and_put_whose_answer_is_lost_is_not_repeated(
    own_hbase: HBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HBASE_IDLE_S", 10**9)  # the broken connection is not replaced for its age
    backend = open_backend(f"{own_hbase.url}/once")
    assert backend.check_and_put("pending", key(1), b"a", None, b"1")
    own_hbase.process("thrift").kill()
    own_hbase.start()
    with pytest.raises(StoreUnavailable):
        backend.check_and_put("pending", key(2), b"a", None, b"1")
    assert backend.check_and_put("pending", key(2), b"a", None, b"1")
    backend.close()


def test_a_scan_goes_on_behind_its_last_row_when_the_gateway_was_started_again(own_hbase: HBase) -> None:
    backend = open_backend(f"{own_hbase.url}/scans")
    rows = [(key(n), {b"a": bytes(2_000)}) for n in range(3_000)]
    backend.put([("pending", rows)])
    scanned = backend.scan("pending", b"", LATE)
    begun = [next(scanned) for _ in range(10)]
    own_hbase.process("thrift").kill()
    own_hbase.start()
    assert begun + list(scanned) == rows
    backend.close()


@pytest.mark.seed("A34", compares="acknowledged rows with those there after a kill of HBase")
def test_a_kill_of_hbase_loses_nothing_that_was_acknowledged(own_hbase: HBase) -> None:
    backend = open_backend(f"{own_hbase.url}/killed")
    written = 0
    for batch in range(50):
        backend.put([("pending", [(key(200 * batch + n), {b"a": b"x" * 100}) for n in range(200)])])
        written += 200
    own_hbase.kill()
    own_hbase.start()
    assert [k for k, _ in backend.scan("pending", b"", LATE, keys_only=True)] == [key(n) for n in range(written)]
    backend.close()
