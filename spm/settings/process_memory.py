"""Gives memory back that a serving process does not need: code kept for the compiler, and free parts of the heap.

- A kernel that is loaded from numba's cache comes with its intermediate code, which only the compiler reads, when
  another kernel that calls it is compiled. ``keep_intermediate_code_packed`` keeps it as the bytes it was stored in, a
  tenth of its size, and unpacks it when it is asked for. It reaches into numba and changes nothing where numba has
  become another.
- The C library keeps what a wide query has freed. ``trim_heap_regularly`` returns it to the system.
- Arrow imports pandas, where it is installed, to find out whether an argument is one of its objects: 30 MB.
  ``do_without_pandas`` hides it; a run on Spark, which needs it, is a process of its own.

All are for processes that live long; tools and tests do without. Nothing here keeps data.
"""

import ctypes
import sys
import threading
from importlib.abc import MetaPathFinder
from typing import Any

from llvmlite import binding
from numba.core import codegen

_TRIM_EVERY_S = 10.0
_FREE_BYTES = 16_000_000  # less is soon used again
_PACKED = "_spm_intermediate_code"


class _HeapUse(ctypes.Structure):
    """The C library's ``struct mallinfo2``."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "free_chunks", "fast_chunks", "mapped", "mapped_bytes", "highest", "fast_bytes", "used"),
            *("free", "top"),
        )
    )


def keep_intermediate_code_packed() -> None:
    """Change numba so that kernels it loads from now on keep their intermediate code packed. Calling twice is safe."""
    library: Any = codegen.JITCodeLibrary
    if hasattr(library, _PACKED) or not all(
        hasattr(library, name) for name in ("_unserialize", "_get_module_for_linking")
    ):
        return
    load, module_for_linking = library._unserialize.__func__, library._get_module_for_linking

    def load_packed(cls: Any, engine: Any, state: Any) -> Any:
        loaded = load(cls, engine, state)
        _, kind, data = state
        if kind == "object" and loaded._shared_module is not None:
            setattr(loaded, _PACKED, data[1])
            loaded._shared_module = None
        return loaded

    def unpacked_for_linking(self: Any) -> Any:
        packed = getattr(self, _PACKED)
        if packed is not None and self._shared_module is None:
            self._shared_module = binding.parse_bitcode(packed)
        return module_for_linking(self)

    setattr(library, _PACKED, None)
    library._unserialize = classmethod(load_packed)
    library._get_module_for_linking = unpacked_for_linking


class _NoPandas(MetaPathFinder):
    """Refuses the import of pandas. ``None`` in its place among the modules would be taken for the module by Arrow."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not for this process: see spm.settings.process_memory", name=name)


def do_without_pandas() -> None:
    """Let this process find no pandas, unless it has it already. Calling twice is safe."""
    if not any(isinstance(finder, _NoPandas) for finder in sys.meta_path):
        sys.meta_path.insert(0, _NoPandas())


def trim_heap_regularly() -> None:
    """Start a thread that returns free memory to the system; nothing happens with a C library that cannot."""
    if hasattr(_C, "mallinfo2") and hasattr(_C, "malloc_trim"):
        threading.Thread(target=_trim_for_ever, name="heap", daemon=True).start()


def trim_heap() -> None:
    """Return free memory of the heap to the system, if it may be worth it; what has gone already costs 1 ms."""
    if _C.mallinfo2().free >= _FREE_BYTES:
        _C.malloc_trim(0)


def _trim_for_ever() -> None:
    pause = threading.Event()
    while not pause.wait(_TRIM_EVERY_S):
        trim_heap()


_C = ctypes.CDLL(None)
if hasattr(_C, "mallinfo2"):
    _C.mallinfo2.restype = _HeapUse
