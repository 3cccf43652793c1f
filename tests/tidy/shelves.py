"""The shape of the tree: how many files a folder holds, and which siblings import each other in a circle.

Both see the whole tree at once, so they are no rules over one file. ``circles`` treats the children of every folder,
files and packages alike, as nodes: an import from ``a/b/c.py`` to ``a/d/e.py`` is an arrow ``b → d`` in ``a``.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from tests.tidy.rules import Source

FILES_MAX = 14
SKIPS_MAX = 40  # of ``fmt: skip``, in the whole tree


def overfull_folders(paths: Iterable[str]) -> dict[str, int]:
    """Return the folders with more than ``FILES_MAX`` Python files, with their number."""
    counts: dict[str, int] = defaultdict(int)
    for path in paths:
        folder, _, name = path.rpartition("/")
        counts[folder] += name != "__init__.py"
    return {folder: count for folder, count in counts.items() if count > FILES_MAX}


def circles(sources: Iterable[Source]) -> list[str]:
    """One circle of siblings per folder that has any, as ``folder: a → b → a``."""
    sources = list(sources)
    modules = {_module(source.path) for source in sources}
    arrows: dict[tuple[str, ...], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for source in sources:
        own = tuple(_module(source.path).split("."))
        for target in _targets(source, modules):
            other = tuple(target.split("."))
            shared = next((i for i, (a, b) in enumerate(zip(own, other, strict=False)) if a != b), None)
            if shared:
                arrows[own[:shared]][own[shared]].add(other[shared])
    return [
        f"{'.'.join(folder)}: {' → '.join(circle)}" for folder, graph in arrows.items() if (circle := _circle(graph))
    ]


def _circle(graph: Mapping[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def _targets(source: Source, modules: set[str]) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield from (name for name in [whole if whole in modules else node.module] if name in modules)


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
