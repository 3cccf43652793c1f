"""Claims about an operator's placement functions: a setting names them, all processes agree, no read goes wrong."""

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.writer import Writer
from spm.errors import PlacementUnfit, Refused
from spm.store import epochs, placement
from spm.store.backends.memory import MemoryBackend
from spm.store.keys import BYTE, CLOSED, CLOSING, HASH, PlacementTable
from spm.store.placement import SETTING
from spm.wire import metric_id
from tests.support.rows import APP, START, envelope, plain
from tests.support.store_reader import look, reader

HEAD = "import numpy as np\nfrom spm.store.placement import PlacementFunction\n"
BY_TOP = """
def by_top(app, shards, spread, metrics):
    return (metrics >> np.uint64(56)) % np.uint64(spread)

STRATEGIES = {"by_top": PlacementFunction(by_top, lambda app, shards, spread: range(spread))}
"""
_NAMES = itertools.count()
Given = Callable[..., str]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Given:
    """Write a module of placement functions and name it in the setting; another text stands for a changed module."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(text: str, *more: str) -> str:
        name = f"placing_{next(_NAMES)}"
        (tmp_path / f"{name}.py").write_text(HEAD + text)
        monkeypatch.setenv(SETTING, ",".join([name, *more]))
        return name

    return write


def opened(store: MemoryBackend, name: str = "by_top") -> PlacementTable:
    return epochs.open_epoch(store, APP, function=name, shards=32, spread=5)


def test_an_operators_function_places_metrics_and_readers_look_there(module: Given) -> None:
    module(BY_TOP)
    store = MemoryBackend()
    table = opened(store)
    metrics = np.random.default_rng(1).integers(0, 2**64, 500, np.uint64)
    assert (table.newest.place(APP, metrics) == (metrics >> np.uint64(56)) % np.uint64(5)).all()
    assert table.newest.all_shards(APP) == [0, 1, 2, 3, 4]
    assert epochs.read(store, APP) == table
    messages = [envelope([(s, START + s, 1.0) for s in range(9)], sequence=n) for n in (1, 2)]
    Writer(store, PlacementTable()).write(messages)
    assert look(reader(store)) == plain(messages)


ACTS: dict[str, Callable[[MemoryBackend], object]] = {
    "reading": lambda store: look(reader(store)),
    "writing": lambda store: Writer(store, PlacementTable()).write([envelope([(1, START, 9.0)], sequence=9)]),
    "opening an epoch": lambda store: epochs.open_epoch(store, APP, function=HASH, shards=16, spread=2),
    "setting a state": lambda store: epochs.set_state(store, APP, 0, CLOSING),
}
CHANGED = {
    "a process without the module": None,
    "a module that places by other bits": BY_TOP.replace("56", "55"),
    "a module that looks in other shards": BY_TOP.replace("range(spread))}", "range(shards))}"),
    "a module that fails": BY_TOP.replace("return", "return 1 / 0 *"),
    "a module without the name": BY_TOP.replace('"by_top"', '"top"'),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("changed", CHANGED)
def test_nothing_is_read_or_written_by(changed: str, act: str, module: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    """It might be the wrong place. When the module is back, everything is where it was."""
    name = module(BY_TOP)
    store = MemoryBackend()
    opened(store)
    message = envelope([(s, START + s, 1.0) for s in range(9)], sequence=1)
    Writer(store, PlacementTable()).write([message])
    before = {table: list(store.scan(table, b"", b"\xff" * 64)) for table in ("log", "pending", "config")}
    text = CHANGED[changed]
    monkeypatch.delenv(SETTING) if text is None else module(text)
    with pytest.raises(PlacementUnfit, match=SETTING if text is None else "placement function"):
        ACTS[act](store)
    assert before == {table: list(store.scan(table, b"", b"\xff" * 64)) for table in before}
    monkeypatch.setenv(SETTING, name)
    assert look(reader(store)) == plain([message])


def test_a_closed_epoch_still_needs_its_function(module: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    """The function says which rows in a shard a late writer left by the closed epoch."""
    module(BY_TOP)
    store = MemoryBackend()
    opened(store)
    epochs.open_epoch(store, APP, function=HASH, shards=16, spread=2)
    for state in (CLOSING, CLOSED):
        epochs.set_state(store, APP, 1, state)
    monkeypatch.delenv(SETTING)
    with pytest.raises(PlacementUnfit, match="by_top"):
        epochs.read(store, APP)


def test_metrics_that_a_function_treats_specially_belong_to_its_fingerprint(module: Given) -> None:
    """No sample of arbitrary ids would show them, so the function names them."""
    text = f"""
HOT = {{{metric_id(b"hot")}: 7}}

def by_list(app, shards, spread, metrics):
    shard = metrics % np.uint64(4)
    for metric, its_shard in HOT.items():
        shard[metrics == np.uint64(metric)] = its_shard
    return shard

STRATEGIES = {{"by_list": PlacementFunction(by_list, metrics=("hot",))}}
"""
    module(text)
    store = MemoryBackend()
    table = opened(store, "by_list")
    assert table.newest.place(APP, np.array([metric_id(b"hot")], np.uint64)).tolist() == [7]
    module(text.replace(": 7}", ": 8}"))
    with pytest.raises(PlacementUnfit, match="elsewhere"):
        epochs.read(store, APP)


UNFIT = {
    "is not importable": ("import nothing_of_that_name", "does not load"),
    "does not compile": ("def", "does not load"),
    "raises when it is imported": ("1 / 0", "ZeroDivisionError"),
    "has no mapping": ("X = 1", "does not load"),
    "has a list": ("STRATEGIES = [1]", "no mapping"),
    "has plain functions": ("STRATEGIES = {'x': len}", "no mapping"),
    "has a name with the separator": ("STRATEGIES = {'a/b': PlacementFunction(len)}", "no mapping"),
    "takes the name of a built-in one": ("STRATEGIES = {'hash': PlacementFunction(len)}", "two placement functions"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_a_module_is_refused_that(case: str, module: Given) -> None:
    text, error = UNFIT[case]
    module(text)
    with pytest.raises(PlacementUnfit, match=error):
        placement.function_names()


def test_two_modules_may_not_have_one_name(module: Given) -> None:
    module(BY_TOP, module(BY_TOP))
    with pytest.raises(PlacementUnfit, match="two placement functions are named 'by_top'"):
        placement.function_names()


ANSWERS = {
    "shards that do not exist": ("metrics * 0 + 32", "all_shards", "does not name"),
    "shards it did not name": ("metrics % 6", "lambda *a: range(5)", "does not name"),
    "negative shards": ("metrics.astype(np.int64) * 0 - 1", "all_shards", "does not name"),
    "fractions": ("metrics * 0.5", "all_shards", "something else than shards"),
    "one for all": ("np.uint64(3)", "all_shards", "something else than shards"),
    "nothing": ("None", "all_shards", "something else than shards"),
    "an error": ("metrics[10**9]", "all_shards", "IndexError"),
    "a list with a shard too high": ("metrics * 0", "lambda *a: [0, 32]", "do not exist"),
    "an empty list": ("metrics * 0", "lambda *a: []", "do not exist"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_an_epoch_is_not_opened_by_a_function_that_returns(case: str, module: Given) -> None:
    answer, where, error = ANSWERS[case]
    module(
        "from spm.store.placement import all_shards\n"
        f"STRATEGIES = {{'odd': PlacementFunction(lambda app, shards, spread, metrics: {answer}, {where})}}"
    )
    with pytest.raises(PlacementUnfit, match=error):
        opened(MemoryBackend(), "odd")


def test_the_former_names_still_work_in_an_operators_module(module: Given) -> None:
    module(
        "from spm.store.placement import Strategy, everywhere\n"
        "STRATEGIES = {'odd': Strategy(lambda app, shards, spread, metrics: metrics % np.uint64(3), everywhere)}"
    )
    assert opened(MemoryBackend(), "odd").newest.all_shards(APP) == list(range(32))


def test_a_function_that_returns_other_shards_later_stops_the_writer(module: Given) -> None:
    """One that depends on more than its arguments passes the check of a sample, and fails when it is used."""
    module("""
calls = []

def drifts(app, shards, spread, metrics):
    calls.append(1)
    return metrics * 0 + np.uint64(0 if len(metrics) > 500 else 40)

STRATEGIES = {"drifts": PlacementFunction(drifts)}
""")
    store = MemoryBackend()
    opened(store, "drifts")
    with pytest.raises(PlacementUnfit, match="does not name"):
        Writer(store, PlacementTable()).write([envelope([(1, START, 1.0)], sequence=1)])
    assert not list(store.scan("log", b"", b"\xff" * 64))


def test_without_the_setting_there_are_only_built_in_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SETTING, raising=False)
    assert placement.function_names() == [HASH, BYTE]
    assert placement.modules(" a.b, ,c ") == ["a.b", "c"]
    assert placement.name_of("by_top/0123456789abcdef") == "by_top"
    assert placement.name_of(HASH) == placement.with_fingerprint(HASH, 16, 2) == HASH


@given(st.integers(1, 256))
def test_the_last_byte_places_metrics_only_where_it_fills_all_shards_evenly(shards: int) -> None:
    """256 values over 255 shards load one of them twice: such an epoch is refused, and hash serves instead."""
    metrics = np.arange(256, dtype=np.uint64)
    loads = np.bincount(placement.place(BYTE, APP, shards, 1, metrics), minlength=shards)
    assert placement.byte_fits(shards) == (loads.max() / loads.mean() <= 1.1)
    try:
        epochs.open_epoch(MemoryBackend(), APP, function=BYTE, shards=shards, spread=1)
    except Refused:
        assert not placement.byte_fits(shards)
    else:
        assert placement.byte_fits(shards)
