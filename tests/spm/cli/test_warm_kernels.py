"""The rehearsal compiles every kernel that anything calls, so that no request ever waits for a compiler."""

import ast
import importlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import call_command

from spm.cli import prepare, warm_kernels

ROOT = Path(__file__).resolve().parents[3]


def files() -> Iterator[tuple[str, ast.Module]]:
    """Every module of the product that has kernels, parsed."""
    for room in ("spm", "ingest", "rollups"):
        for path in sorted((ROOT / room).rglob("*.py")):
            text = path.read_text()
            if "@njit" in text:
                yield ".".join(path.relative_to(ROOT).with_suffix("").parts), ast.parse(text)


def is_kernel(node: ast.stmt) -> bool:
    """Whether a statement defines a compiled function."""
    return isinstance(node, ast.FunctionDef) and any("njit" in ast.unparse(mark) for mark in node.decorator_list)


def entries(module: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(module, name) of kernels that plain code of their own module calls."""
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and is_kernel(node)}
    plain = [node for node in tree.body if not is_kernel(node)]
    called = {n.id for node in plain for n in ast.walk(node) if isinstance(n, ast.Name)}
    yield from ((module, name) for name in sorted(names & called))


def test_every_kernel_that_plain_code_calls_is_compiled_by_the_rehearsal() -> None:
    for part in warm_kernels.PARTS.values():
        part()
    kernels = [entry for module, tree in files() for entry in entries(module, tree)]
    cold = [f"{m}.{name}" for m, name in kernels if not getattr(importlib.import_module(m), name).signatures]
    assert len(kernels) > 20
    assert not cold, cold


def test_a_start_rehearses_every_part() -> None:
    assert set(prepare.KERNEL_PARTS) == set(warm_kernels.PARTS)


@pytest.mark.parametrize(
    ("words", "has_folder", "stale", "compiled", "later"),
    [
        pytest.param(["--kernels-later"], True, True, 0, True, id="a start serves meanwhile"),
        pytest.param(["--kernels-later"], False, True, 1, False, id="no folder that shows their progress"),
        pytest.param([], True, True, 1, False, id="prepared alone"),
        pytest.param(["--kernels-later"], True, False, 0, False, id="compiled before"),
    ],
)
def test_prepare_leaves_kernels_to_a_start(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    has_folder: bool,
    stale: bool,
    compiled: int,
    later: bool,
) -> None:
    done, command = list[int](), "spm.management.commands.prepare"
    for name, fake in {
        "steps": list,
        "kernels_are_stale": lambda: stale,
        "warm_kernels": lambda: done.append(1),
        "open_backend": lambda url: None,
        "check_store": lambda *_, **__: None,
        "create_demo": lambda *_: {"app": 1},
        "internal_app.create": lambda: None,
    }.items():
        monkeypatch.setattr(f"{command}.{name}", fake)
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/kernels")
    if not has_folder:
        monkeypatch.delenv("NUMBA_CACHE_DIR")
    call_command("prepare", *words)
    kernels = json.loads(capsys.readouterr().out)["kernels_later"]
    assert (len(done), kernels) == (compiled, prepare.count_kernels() if later else 0)


def test_no_kernel_is_pasted_into_its_callers_before_these_are_compiled() -> None:
    """numba would compile it again as a part of each; ``forceinline`` leaves it to the last step, which is as fast."""
    pasted = [path.name for path in prepare._sources() if path.suffix == ".py" and 'inline="' in path.read_text()]
    assert pasted == []


def test_kernels_are_counted_as_the_tree_of_the_code_has_them() -> None:
    own = [
        decorator
        for path in prepare._sources()
        if path.suffix == ".py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "njit"
    ]
    assert prepare.count_kernels() == len(own) > 200
