"""Claims about an operator's own strategies: named by a setting, the same everywhere, and never a wrong read."""

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.writer import Writer
from spm.errors import Refused, StrategyUnfit
from spm.store import epochs, placement
from spm.store.backends.memory import MemoryBackend
from spm.store.keys import BYTE, CLOSED, CLOSING, HASH, Distribution
from spm.store.placement import SETTING
from spm.wire import metric_id
from tests.support.rows import APP, START, envelope, plain
from tests.support.store_reader import look, reader

HEAD = "import numpy as np\nfrom spm.store.placement import Strategy\n"
BY_TOP = """
def by_top(app, shards, spread, metrics):
    return (metrics >> np.uint64(56)) % np.uint64(spread)

STRATEGIES = {"by_top": Strategy(by_top, lambda app, shards, spread: range(spread))}
"""
_NAMES = itertools.count()
Given = Callable[..., str]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Given:
    """Write a module of strategies and name it in the setting; another text stands for a module that was changed."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(text: str, *more: str) -> str:
        name = f"placing_{next(_NAMES)}"
        (tmp_path / f"{name}.py").write_text(HEAD + text)
        monkeypatch.setenv(SETTING, ",".join([name, *more]))
        return name

    return write


def opened(store: MemoryBackend, name: str = "by_top") -> Distribution:
    return epochs.open_epoch(store, APP, strategy=name, shards=32, spread=5)


def test_a_strategy_of_an_operator_places_and_readers_look_there(module: Given) -> None:
    module(BY_TOP)
    store = MemoryBackend()
    made = opened(store)
    metrics = np.random.default_rng(1).integers(0, 2**64, 500, np.uint64)
    assert (made.newest.of(APP, metrics) == (metrics >> np.uint64(56)) % np.uint64(5)).all()
    assert made.newest.all(APP) == [0, 1, 2, 3, 4]
    assert epochs.read(store, APP) == made
    messages = [envelope([(s, START + s, 1.0) for s in range(9)], sequence=n) for n in (1, 2)]
    Writer(store, Distribution()).write(messages)
    assert look(reader(store)) == plain(messages)


ACTS: dict[str, Callable[[MemoryBackend], object]] = {
    "reading": lambda store: look(reader(store)),
    "writing": lambda store: Writer(store, Distribution()).write([envelope([(1, START, 9.0)], sequence=9)]),
    "opening an epoch": lambda store: epochs.open_epoch(store, APP, strategy=HASH, shards=16, spread=2),
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
    Writer(store, Distribution()).write([message])
    before = {table: list(store.scan(table, b"", b"\xff" * 64)) for table in ("log", "pending", "config")}
    text = CHANGED[changed]
    monkeypatch.delenv(SETTING) if text is None else module(text)
    with pytest.raises(StrategyUnfit, match=SETTING if text is None else "strateg"):
        ACTS[act](store)
    assert before == {table: list(store.scan(table, b"", b"\xff" * 64)) for table in before}
    monkeypatch.setenv(SETTING, name)
    assert look(reader(store)) == plain([message])


def test_a_closed_epoch_still_needs_its_strategy(module: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a late writer left by it is told from what belongs there by where that strategy puts it."""
    module(BY_TOP)
    store = MemoryBackend()
    opened(store)
    epochs.open_epoch(store, APP, strategy=HASH, shards=16, spread=2)
    for state in (CLOSING, CLOSED):
        epochs.set_state(store, APP, 1, state)
    monkeypatch.delenv(SETTING)
    with pytest.raises(StrategyUnfit, match="by_top"):
        epochs.read(store, APP)


def test_metrics_that_are_treated_in_a_way_of_their_own_belong_to_the_mark(module: Given) -> None:
    """No sample of made-up ids would tell: the strategy names them."""
    text = f"""
HOT = {{{metric_id(b"hot")}: 7}}

def by_list(app, shards, spread, metrics):
    found = metrics % np.uint64(4)
    for metric, shard in HOT.items():
        found[metrics == np.uint64(metric)] = shard
    return found

STRATEGIES = {{"by_list": Strategy(by_list, metrics=("hot",))}}
"""
    module(text)
    store = MemoryBackend()
    made = opened(store, "by_list")
    assert made.newest.of(APP, np.array([metric_id(b"hot")], np.uint64)).tolist() == [7]
    module(text.replace(": 7}", ": 8}"))
    with pytest.raises(StrategyUnfit, match="elsewhere"):
        epochs.read(store, APP)


UNFIT = {
    "is not importable": ("import nothing_of_that_name", "cannot be used"),
    "does not compile": ("def", "cannot be used"),
    "raises when it is imported": ("1 / 0", "ZeroDivisionError"),
    "has no mapping": ("X = 1", "cannot be used"),
    "has a list": ("STRATEGIES = [1]", "of no use"),
    "has functions instead of strategies": ("STRATEGIES = {'x': len}", "of no use"),
    "has a name with the sign before a mark": ("STRATEGIES = {'a/b': Strategy(len)}", "of no use"),
    "takes one of our names": ("STRATEGIES = {'hash': Strategy(len)}", "two strategies"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_a_module_is_refused_that(case: str, module: Given) -> None:
    text, told = UNFIT[case]
    module(text)
    with pytest.raises(StrategyUnfit, match=told):
        placement.known()


def test_two_modules_may_not_have_one_name(module: Given) -> None:
    module(BY_TOP, module(BY_TOP))
    with pytest.raises(StrategyUnfit, match="two strategies are named 'by_top'"):
        placement.known()


ANSWERS = {
    "shards that are not there": ("metrics * 0 + 32", "everywhere", "nobody looks"),
    "shards it did not name": ("metrics % 6", "lambda *a: range(5)", "nobody looks"),
    "negative shards": ("metrics.astype(np.int64) * 0 - 1", "everywhere", "nobody looks"),
    "fractions": ("metrics * 0.5", "everywhere", "of no use"),
    "one for all": ("np.uint64(3)", "everywhere", "of no use"),
    "nothing": ("None", "everywhere", "of no use"),
    "an error": ("metrics[10**9]", "everywhere", "IndexError"),
    "a place beyond the shards": ("metrics * 0", "lambda *a: [0, 32]", "not there"),
    "no place at all": ("metrics * 0", "lambda *a: []", "not there"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_an_epoch_is_not_opened_by_a_strategy_that_answers(case: str, module: Given) -> None:
    answer, where, told = ANSWERS[case]
    module(
        "from spm.store.placement import everywhere\n"
        f"STRATEGIES = {{'odd': Strategy(lambda app, shards, spread, metrics: {answer}, {where})}}"
    )
    with pytest.raises(StrategyUnfit, match=told):
        opened(MemoryBackend(), "odd")


def test_a_strategy_that_answers_otherwise_later_stops_the_writer(module: Given) -> None:
    """One that is no function of its arguments alone passes the look at a sample, and is caught in the act."""
    module("""
calls = []

def drifts(app, shards, spread, metrics):
    calls.append(1)
    return metrics * 0 + np.uint64(0 if len(metrics) > 500 else 40)

STRATEGIES = {"drifts": Strategy(drifts)}
""")
    store = MemoryBackend()
    opened(store, "drifts")
    with pytest.raises(StrategyUnfit, match="nobody looks"):
        Writer(store, Distribution()).write([envelope([(1, START, 1.0)], sequence=1)])
    assert not list(store.scan("log", b"", b"\xff" * 64))


def test_without_the_setting_there_are_our_own_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SETTING, raising=False)
    assert placement.known() == [HASH, BYTE]
    assert placement.modules(" a.b, ,c ") == ["a.b", "c"]
    assert placement.plain("by_top/0123456789abcdef") == "by_top"
    assert placement.plain(HASH) == placement.signed(HASH, 16, 2) == HASH


@given(st.integers(1, 256))
def test_the_last_byte_is_taken_for_numbers_of_shards_that_it_fills_alike(shards: int) -> None:
    """256 values over 255 shards load one of them twice: such an epoch is refused, and hash is there for it."""
    metrics = np.arange(256, dtype=np.uint64)
    loads = np.bincount(placement.place(BYTE, APP, shards, 1, metrics), minlength=shards)
    assert placement.byte_fits(shards) == (loads.max() / loads.mean() <= 1.1)
    try:
        epochs.open_epoch(MemoryBackend(), APP, strategy=BYTE, shards=shards, spread=1)
    except Refused:
        assert not placement.byte_fits(shards)
    else:
        assert placement.byte_fits(shards)
