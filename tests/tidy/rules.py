"""The rules of the house that no linter knows, each a function from one parsed file to what it complains about.

``ALL`` names them. A rule sees a ``Source`` (path within the repository, text, syntax tree) and yields sentences; it
reads nothing else. ``tests/tidy/test_tidy.py`` runs them over the tree, and over a bad example of each.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import lru_cache

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
KERNEL_LINES_MAX = 150  # in files of numba kernels: a compiled loop is not cut where a reader would cut it

# Library → the only files that may import it.
LIBRARY_FILES = {
    "happybase": ("spm/store/backends/hbase_gateway.py",),
    "thriftpy2": ("spm/store/backends/hbase*.py",),
    "lmdb": ("spm/store/backends/lmdb.py",),
    "pika": ("ingest/transport/amqp*.py",),
    "prometheus_client": ("spm/telemetry.py",),
    "pyspark": ("rollups/*",),
    "django.core.mail": ("alerts/notify/email.py",),
    "random": ("spm/clock.py",),
    "secrets": ("spm/clock.py",),
}
CLOCK = {
    ("time", "time"),
    ("time", "time_ns"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
    ("date", "today"),
    ("timezone", "now"),
    ("uuid", "uuid1"),
    ("uuid", "uuid4"),
    ("os", "urandom"),
}
PURE_NAMES = ("plan.py", "rules.py")
PURE_FOLDERS = ("rollups/decide/",)
NO_IO = ("os", "pathlib", "socket", "subprocess", "requests", "urllib", "django", "spm.store.backends")
NO_WEB = ("django", "rest_framework", "celery")
NO_WEB_NAMES = (*PURE_NAMES, "batch.py", "stamper.py")
PARTICIPLES = {"found", "made", "told", "kept", "held", "asked"}
ROLE_FILES = (  # what makes and changes memberships, and the table of rights
    "spm/accounts/models.py",
    "spm/accounts/access.py",
    "spm/accounts/bootstrap.py",
    "spm/accounts/organisations/*.py",
)
ENTRY_POINTS = ("*/tasks.py", "*/admin.py", "*/management/commands/*.py")


@dataclass(frozen=True, slots=True)
class Source:
    """One file of the tree."""

    path: str
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[-1]

    @property
    def is_test(self) -> bool:
        return self.path.startswith("tests/")


Rule = Callable[[Source], Iterator[str]]


def short_files(source: Source) -> Iterator[str]:
    """A module is a room: 500 lines fail."""
    lines = source.text.count("\n")
    if lines > FILE_LINES_MAX:
        yield f"{source.path} has {lines} lines"


def short_functions(source: Source) -> Iterator[str]:
    """A function fits in one look."""
    most = KERNEL_LINES_MAX if "kernel" in source.name else FUNCTION_LINES_MAX
    for node in _functions(source.tree):
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > most:
            yield f"{source.path}:{node.lineno} {node.name} has {lines} lines"


def module_docstrings(source: Source) -> Iterator[str]:
    """Every module that holds something says what it is for."""
    if source.tree.body and not ast.get_docstring(source.tree):
        yield f"{source.path} has no docstring"


def libraries_are_imported_in_one_place(source: Source) -> Iterator[str]:
    """Only the files listed in ``LIBRARY_FILES`` import these libraries."""
    if source.is_test:
        return
    for line, module in _imports(source.tree):
        for library, files in LIBRARY_FILES.items():
            if _within(module, library) and not any(fnmatch(source.path, file) for file in files):
                yield f"{source.path}:{line} imports {module}"


def one_clock(source: Source) -> Iterator[str]:
    """Only spm/clock.py reads the time or draws random numbers."""
    if source.is_test or source.path == "spm/clock.py":
        return
    for node in _nodes(source.tree):
        if isinstance(node, ast.Attribute) and (_last_name(node.value), node.attr) in CLOCK:
            yield f"{source.path}:{node.lineno} uses {_last_name(node.value)}.{node.attr}"
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (node.module.rsplit(".", 1)[-1], alias.name) in CLOCK:
                    yield f"{source.path}:{node.lineno} imports {alias.name} from {node.module}"


def no_import_in_functions(source: Source) -> Iterator[str]:
    """What a module needs stands at its top."""
    for function in () if source.is_test else _functions(source.tree):
        for node in ast.walk(function):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield f"{source.path}:{node.lineno} imports inside {function.name}"


def pure_files(source: Source) -> Iterator[str]:
    """Files named plan or rules and those of rollups/decide do no I/O; batch and stamper know no web framework."""
    if source.is_test or "/commands/" in source.path:  # a command's file has the name that people type
        return
    banned = (
        NO_IO
        if source.name in PURE_NAMES or source.path.startswith(PURE_FOLDERS)
        else NO_WEB
        if source.name in NO_WEB_NAMES
        else ()
    )
    for line, module in _imports(source.tree):
        if any(_within(module, name) for name in banned):
            yield f"{source.path}:{line} imports {module}"


def entry_points_do_not_decide(source: Source) -> Iterator[str]:
    """Tasks, commands and admin: arguments → one call → answer; at most two ``if`` about the arguments each."""
    if source.is_test or not any(fnmatch("/" + source.path, pattern) for pattern in ENTRY_POINTS):
        return
    for function in _functions(source.tree):
        ifs = sum(isinstance(node, ast.If) for node in ast.walk(function))
        if ifs > 2:
            yield f"{source.path}:{function.lineno} {function.name} decides {ifs} times"


def no_signals_no_save(source: Source) -> Iterator[str]:
    """Models hold fields: no signals, no ``save`` of their own."""
    for line, module in _imports(source.tree):
        if not source.is_test and (_within(module, "django.dispatch") or module.endswith("models.signals")):
            yield f"{source.path}:{line} imports {module}"
    for function in _functions(source.tree):
        if function.name == "save" and source.name == "models.py":
            yield f"{source.path}:{function.lineno} overrides save"


def frozen_values(source: Source) -> Iterator[str]:
    """Values are frozen dataclasses with slots. One whose fields its module sets is no value but a state: slots do."""
    changed = {n.attr for n in _nodes(source.tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    for node in _nodes(source.tree):
        if not isinstance(node, ast.ClassDef) or source.is_test:
            continue
        state = any(isinstance(n, ast.AnnAssign) and ast.unparse(n.target) in changed for n in node.body)
        for mark in node.decorator_list:
            wanted = {"slots=True"} if state else {"frozen=True", "slots=True"}
            if "dataclass" in ast.unparse(mark) and not wanted <= _keywords(mark):
                yield f"{source.path}:{node.lineno} {node.name} is not frozen with slots"


def claims(source: Source) -> Iterator[str]:
    """A test's name is a sentence: subject, what it does, when."""
    for function in _functions(source.tree):
        if source.is_test and function.name.startswith("test_") and function.name.count("_") < 3:
            yield f"{source.path}:{function.lineno} {function.name} claims nothing"


def loops_of_tests(source: Source) -> Iterator[str]:
    """A test has its loop from ``tests.support.event_loop``: Playwright may have left a running one in its thread."""
    for node in _nodes(source.tree):
        if (
            source.is_test
            and isinstance(node, ast.Attribute)
            and node.attr == "run"
            and _last_name(node.value) == "asyncio"
        ):
            yield f"{source.path}:{node.lineno} calls asyncio.run: it takes on_loop"


def finished(source: Source) -> Iterator[str]:
    """Nothing is left for later, and no machine's own paths stand in the code."""
    for mark in ("TO" + "DO", "FIX" + "ME", "NotImplemented" + "Error", "/" + "work/", "/" + "root/"):
        if mark in source.text:
            yield f"{source.path} holds {mark}"


def names_of_values(source: Source) -> Iterator[str]:
    """A value is named by a noun: ``rows``, not ``found``. Only a boolean parameter may be a participle."""
    for node in _nodes(source.tree):
        for name in _bound_names(node):
            if name.strip("_").lower() in PARTICIPLES:
                yield f"{source.path}:{node.lineno} {name} does not say what it holds"  # type: ignore[attr-defined]


def plain_patterns(source: Source) -> Iterator[str]:
    """No atomic group, and no group repeated possessively: Python 3.11 before 3.11.5 finds too little with them."""
    for node in _nodes(source.tree):
        if not isinstance(node, ast.Call) or isinstance(node.func, ast.Name) or _first_name(node.func) != "re":
            continue
        texts = [str(n.value) for argument in node.args for n in ast.walk(argument) if isinstance(n, ast.Constant)]
        if any(mark in text for text in texts for mark in (")*+", ")++", ")?+", "(?>")):
            yield f"{source.path}:{node.lineno} repeats a group possessively"


def rights_and_not_roles(source: Source) -> Iterator[str]:
    """A right decides what a person may do: only accounts know roles, and no other file compares one."""
    if source.is_test or any(fnmatch(source.path, file) for file in ROLE_FILES):
        return
    for node in _nodes(source.tree):
        match node:
            case ast.alias(name="Role") | ast.Name(id="Role") | ast.Attribute(attr="Role"):
                yield f"{source.path}:{node.lineno} uses Role"
            case ast.Compare(left=ast.Attribute(attr="role")):
                yield f"{source.path}:{node.lineno} compares a role"


ALL: tuple[Rule, ...] = (
    short_files,
    short_functions,
    module_docstrings,
    libraries_are_imported_in_one_place,
    one_clock,
    no_import_in_functions,
    pure_files,
    entry_points_do_not_decide,
    no_signals_no_save,
    frozen_values,
    claims,
    loops_of_tests,
    names_of_values,
    plain_patterns,
    rights_and_not_roles,
    finished,
)


@lru_cache(1)  # the rules look at one tree after the other
def _nodes(tree: ast.AST) -> list[ast.AST]:
    return list(ast.walk(tree))


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in _nodes(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in _nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def _bound_names(node: ast.AST) -> Iterator[str]:
    """The names that a node gives to a value, a function or a class; boolean parameters apart."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.arg(arg=name, annotation=annotation) if annotation is None or ast.unparse(annotation) != "bool":
            yield name


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def _last_name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _first_name(node: ast.expr) -> str:
    """The name that ``re.compile(x).match`` begins with."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _keywords(mark: ast.expr) -> set[str]:
    return {f"{k.arg}={ast.unparse(k.value)}" for k in mark.keywords} if isinstance(mark, ast.Call) else set()
