"""The rehearsal compiles every kernel that anything calls, so that no request ever waits for a compiler."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

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
