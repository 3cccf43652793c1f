"""Memory that serving processes give back."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from spm.settings.process_memory import trim_heap

CALLEE = """
from numba import njit

@njit(cache=True, nogil=True)
def half(value):
    total = 0.0
    for n in range(3):
        total += value
    return total / 6
"""
CALLER = """
import sys
from spm.settings.process_memory import keep_intermediate_code_packed
if sys.argv[1] == "packed":
    keep_intermediate_code_packed()
    keep_intermediate_code_packed()  # twice is once
from numba import njit
from numba.core import codegen
from callee import half

assert half(2.0) == 1.0
[loaded] = half.overloads.values()
print("kept", loaded.library._shared_module is not None)

@njit(nogil=True)
def quarter(value):
    return half(half(value))

print("compiled", quarter(2.0))
"""


ASKS = """
import sys
from spm.settings.process_memory import do_without_pandas
{call}
import pyarrow as pa
assert pa.array([b"a", None]).null_count == 1
assert pa.scalar(b"", pa.binary()).as_py() == b""
print("pandas" not in sys.modules)
"""


@pytest.fixture
def compiled(tmp_path: Path) -> Path:
    """A folder with a kernel whose compiled code is cached, and a program that loads it and compiles its caller."""
    (tmp_path / "callee.py").write_text(CALLEE)
    (tmp_path / "caller.py").write_text(CALLER)
    _run(tmp_path, "-c", "from callee import half; half(2.0)")
    assert list((tmp_path / "kernels").rglob("*.nbc")), "nothing was cached"
    return tmp_path


@pytest.mark.slow
def test_a_loaded_kernel_keeps_no_intermediate_code_and_its_callers_are_compiled_all_the_same(compiled: Path) -> None:
    assert _run(compiled, "caller.py", "packed") == "kept False\ncompiled 0.5\n"
    assert _run(compiled, "caller.py", "as numba has it") == "kept True\ncompiled 0.5\n"


def test_a_freed_heap_goes_back_to_the_system() -> None:
    pieces = [np.ones(8_000) for _ in range(2_000)]  # each below the size that is mapped by itself
    with_pieces = _private_bytes()
    del pieces[:-1]  # the last one keeps the end of the heap in use
    trim_heap()
    assert with_pieces - _private_bytes() > 100_000_000


def _private_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _run(folder: Path, *arguments: str) -> str:
    root = Path(__file__).resolve().parents[3]
    environ = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "kernels"), "PYTHONPATH": f"{folder}:{root}"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environ, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("hidden", [True, False])
def test_arrow_does_without_pandas_where_it_is_hidden(tmp_path: Path, hidden: bool) -> None:
    (tmp_path / "asks.py").write_text(ASKS.format(call="do_without_pandas()" if hidden else ""))
    assert _run(tmp_path, "asks.py") == f"{hidden}\n"
