"""What every store must do, shown on each: memory, LMDB, and a real HBase where there is one."""

from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from spm.store import keys
from spm.store.backends import open_backend
from spm.store.backends.base import Backend, Row, scan_ranges

K = [bytes([i]) * 21 for i in range(6)]  # rows of the table `pending`


@pytest.fixture(params=["memory", "lmdb", pytest.param("hbase", marks=pytest.mark.real)])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    if request.param == "hbase":
        return open_backend(f"{request.getfixturevalue('hbase_url')}/{tmp_path.name}")
    return open_backend("memory://new" if request.param == "memory" else f"lmdb://{tmp_path}/store")


def rows(backend: Backend, start: bytes = b"", stop: bytes = b"\xff" * 30, **how: Any) -> list[Row]:
    return list(backend.scan("pending", start, stop, **how))


def test_get_answers_in_the_order_asked_with_none_for_absent_rows(backend: Backend) -> None:
    backend.put([("pending", [(K[1], {b"a": b"1"}), (K[2], {b"a": b"2", b"b": b"3"})])])
    assert backend.get("pending", [K[2], K[0], K[1]]) == [{b"a": b"2", b"b": b"3"}, None, {b"a": b"1"}]


def test_get_of_named_columns_is_none_where_the_row_has_none_of_them(backend: Backend) -> None:
    backend.put([("pending", [(K[1], {b"a": b"1", b"c": b"3"})])])
    assert backend.get("pending", [K[1]], [b"a", b"b"]) == [{b"a": b"1"}]
    assert backend.get("pending", [K[1]], [b"b"]) == [None]


def test_get_of_one_column_is_in_the_order_asked_too(backend: Backend) -> None:
    backend.put([("pending", [(K[1], {b"a": b"1", b"ab": b"2"}), (K[2], {b"b": b"3"}), (K[3], {b"a": b"4"})])])
    assert backend.get("pending", [K[3], K[2], K[1], K[0], K[1]], [b"a"]) == [
        {b"a": b"4"},
        None,
        {b"a": b"1"},
        None,
        {b"a": b"1"},
    ]
    assert backend.get("pending", [], [b"a"]) == []


def test_put_twice_equals_put_once_and_adds_cells_to_a_row(backend: Backend) -> None:
    for _ in range(2):
        backend.put([("pending", [(K[1], {b"a": b"1"})]), ("pending", [(K[1], {b"b": b"2"})])])
    assert rows(backend) == [(K[1], {b"a": b"1", b"b": b"2"})]


def test_scan_is_in_key_order_from_start_inclusive_to_stop_exclusive(backend: Backend) -> None:
    backend.put([("pending", [(K[i], {b"a": b"%d" % i}) for i in (4, 2, 3, 1)])])
    assert [k for k, _ in rows(backend, K[2], K[4])] == [K[2], K[3]]


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        ({"limit": 1}, [(K[1], {b"a": b"1"})]),
        ({"keys_only": True}, [(K[1], {}), (K[2], {})]),
        ({"columns": [b"b"]}, [(K[2], {b"b": b"3"})]),
    ],
    ids=["a limit of rows", "keys only", "named columns skip rows without them"],
)
def test_scan_can_be_narrowed_by(backend: Backend, how: dict[str, Any], wanted: list[Row]) -> None:
    backend.put([("pending", [(K[1], {b"a": b"1"}), (K[2], {b"a": b"2", b"b": b"3"})])])
    assert rows(backend, **how) == wanted


def test_ranges_are_scanned_one_after_the_other_however_many_and_whatever_is_in_them(backend: Backend) -> None:
    stored = [(bytes([shard]) + bytes([n]) * 20, {b"a": b"%d" % n}) for shard in (0, 2, 3, 9) for n in range(40)]
    backend.put([("pending", stored)])
    ranges = [(bytes([shard]), bytes([shard + 1])) for shard in range(12)]
    assert list(scan_ranges(backend, "pending", ranges)) == stored
    assert list(scan_ranges(backend, "pending", [ranges[3], ranges[0]], keys_only=True)) == [
        (key, {}) for key, _ in stored[80:120] + stored[:40]
    ]
    assert list(scan_ranges(backend, "pending", [ranges[1], (b"\3", b"\2")], columns=[b"a"])) == []


def test_a_scan_of_ranges_may_be_left_early(backend: Backend) -> None:
    backend.put([("pending", [(bytes([shard]) * 21, {b"a": b"1"}) for shard in range(12)])])
    scanned = scan_ranges(backend, "pending", [(bytes([shard]), bytes([shard + 1])) for shard in range(12)])
    assert next(scanned)[0] == K[0]
    del scanned
    assert len(rows(backend)) == 12


def test_check_and_put_sets_only_from_the_expected_value(backend: Backend) -> None:
    assert backend.check_and_put("pending", K[1], b"m", None, b"1")
    assert not backend.check_and_put("pending", K[1], b"m", None, b"2")
    assert not backend.check_and_put("pending", K[1], b"m", b"0", b"2")
    assert backend.check_and_put("pending", K[1], b"m", b"1", b"2")
    assert backend.get("pending", [K[1]]) == [{b"m": b"2"}]


def test_check_and_put_many_returns_the_present_values_and_does_not_change_them(backend: Backend) -> None:
    backend.check_and_put("pending", K[1], b"c", None, b"old")
    before = backend.check_and_put_many("pending", b"c", [(K[1], b"new"), (K[2], b"x"), (K[2], b"y")])
    assert before == [b"old", None, b"x"]
    assert backend.get("pending", [K[1], K[2]]) == [{b"c": b"old"}, {b"c": b"x"}]


def test_put_new_sets_absent_cells_and_puts_its_steps(backend: Backend) -> None:
    backend.check_and_put("series", K[1], b"c", None, b"own")
    steps = [("log", [(K[3] + b"abcd", {b"v": b"1"})]), ("pending", [(K[4], {b"a": b"2"})])]
    for before in ([b"own", None, b"x"], [b"own", b"x", b"x"]):
        assert backend.put_new("series", b"c", [(K[1], b"own"), (K[2], b"x"), (K[2], b"x")], steps) == before
        assert backend.get("series", [K[1], K[2]]) == [{b"c": b"own"}, {b"c": b"x"}]
        assert backend.get("log", [K[3] + b"abcd"]) == [{b"v": b"1"}]
        assert rows(backend) == [(K[4], {b"a": b"2"})]


def test_put_new_puts_no_step_when_a_cell_has_another_value(backend: Backend) -> None:
    backend.check_and_put("series", K[1], b"c", None, b"another")
    before = backend.put_new("series", b"c", [(K[2], b"x"), (K[1], b"own")], [("pending", [(K[4], {b"a": b"2"})])])
    assert before == [None, b"another"]
    assert backend.get("series", [K[1]]) == [{b"c": b"another"}]
    assert rows(backend) == []


def test_put_new_of_many_large_rows_puts_them_all(backend: Backend) -> None:
    many = [(i.to_bytes(21, "big"), bytes([i % 251]) * 60_000) for i in range(1, 90)]
    steps = [("pending", [(key, {b"v": value}) for key, value in many])]
    assert backend.put_new("series", b"c", many, steps) == [None] * len(many)
    assert rows(backend) == [(key, {b"v": value}) for key, value in many]
    assert [row[b"c"] for row in backend.get("series", [key for key, _ in many]) if row] == [v for _, v in many]


def test_put_then_get_puts_its_steps_and_reads_what_is_there_then(backend: Backend) -> None:
    steps = [("pending", [(K[1], {b"a": b"1"})]), ("config", [(b"own", {b"v": b"2", b"w": b"3"})])]
    for _ in range(2):
        assert backend.put_then_get(steps, "config", [b"absent", b"own"], [b"v"]) == [None, {b"v": b"2"}]
        assert rows(backend) == [(K[1], {b"a": b"1"})]
    many = [(i.to_bytes(21, "big"), {b"v": bytes([i % 251]) * 60_000}) for i in range(1, 120)]
    assert backend.put_then_get([("pending", many)], "config", [b"own"], [b"w"]) == [{b"w": b"3"}]
    assert rows(backend) == [*many, (K[1], {b"a": b"1"})]
    assert backend.put_then_get([], "config", [b"own"], [b"v"]) == [{b"v": b"2"}]


def test_delete_takes_named_cells_or_whole_rows_and_absent_ones_are_no_error(backend: Backend) -> None:
    backend.put([("pending", [(K[1], {b"a": b"1", b"b": b"2"}), (K[2], {b"a": b"1"}), (K[3], {b"a": b"1"})])])
    backend.delete("pending", [(K[1], [b"a", b"z"]), (K[2], None), (K[3], [b"a"]), (K[4], None)])
    assert rows(backend) == [(K[1], {b"b": b"2"})]


def test_a_large_put_of_many_rows_comes_back_whole(backend: Backend) -> None:
    many = [(i.to_bytes(21, "big"), {b"v": bytes([i % 251]) * 60_000}) for i in range(120)]
    backend.put([("pending", many)])
    assert rows(backend) == many


def test_config_keys_of_any_length_do_not_mix(backend: Backend) -> None:
    backend.put([("config", [(b"a", {b"v": b"1"}), (b"ab", {b"v": b"2"})])])
    assert backend.get("config", [b"a", b"ab"]) == [{b"v": b"1"}, {b"v": b"2"}]


def test_a_snapshot_reads_the_rows_of_the_store(backend: Backend) -> None:
    backend.put([("pending", [(K[1], {b"a": b"1"})])])
    with backend.snapshot() as reader:
        assert reader.get("pending", [K[1]]) == [{b"a": b"1"}]
        assert [k for k, _ in reader.scan("pending", K[0], K[5])] == [K[1]]


def test_a_folder_with_a_table_of_an_older_release_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(keys.TABLES, "events", 13)
    open_backend(f"lmdb://{tmp_path}/older").put([("events", [(bytes(13), {b"a": b"1"})])])
    monkeypatch.undo()
    copytree(tmp_path / "older", tmp_path / "store")  # a process opens a folder of LMDB only once
    backend = open_backend(f"lmdb://{tmp_path}/store")
    backend.put([("pending", [(K[1], {b"a": b"1"})])])
    assert rows(backend) == [(K[1], {b"a": b"1"})]
