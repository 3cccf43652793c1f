"""Compiled operations on bytes, eight at a time: hash, comparison and copy; for kernels of the store and of parsers.

numba reads an array of bytes one by one, and checks each index for a negative number; this costs most of the time of
such loops. ``load64`` and ``store64`` move eight bytes at once, at any alignment. They check nothing: the caller
ensures that all eight bytes are inside the array.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from spm.arrays import I64, U8, U32


def _pointer(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Returns a pointer to 64 bits at byte ``index`` of the array."""
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    return builder.bitcast(builder.gep(array.data, [arguments[1]]), ir.IntType(64).as_pointer())


def _load64(typing_context: Any, array: Any, index: Any) -> Any:
    """Returns the eight bytes at ``index`` as a little-endian number."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        loaded = builder.load(_pointer(context, builder, signature, arguments))
        loaded.align = 1
        return loaded

    return types.uint64(array, types.int64), code


def _store64(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    """Write a number as eight bytes at ``index``, little-endian."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        stored = builder.store(arguments[2], _pointer(context, builder, signature, arguments))
        stored.align = 1
        return context.get_dummy_value()

    return types.void(array, types.int64, types.uint64), code


def _uncounted(typing_context: Any, array: Any) -> Any:
    """Returns the array as one that owns nothing."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        struct = context.make_array(signature.args[0])(context, builder, arguments[0])
        struct.meminfo = struct.meminfo.type(None)
        struct.parent = struct.parent.type(None)
        return struct._getvalue()

    return array(array), code


uncounted: Callable[[Any], Any] = intrinsic(_uncounted)  # type: ignore[assignment]
load64: Callable[[U8, int], np.uint64] = intrinsic(_load64)  # type: ignore[assignment]  # as kernels call it
store64: Callable[[U8, int, np.uint64], None] = intrinsic(_store64)  # type: ignore[assignment]


@njit(nogil=True, cache=True, forceinline=True)
def text_hash(seed: np.uint64, multiplier: np.uint64, text: U8, start: int, end: int) -> np.uint64:
    """Returns a keyed hash of text[start:end]; it reads eight bytes per step."""
    h, i = seed, start
    while i + 8 <= end:
        h = (h ^ load64(text, i)) * multiplier
        h ^= h >> np.uint64(32)
        i += 8
    chunk = np.uint64(0)
    if i < end and end - start >= 8:
        chunk = load64(text, end - 8) >> np.uint64(64 - 8 * (end - i))
    elif i < end and start + 8 <= text.size:
        chunk = load64(text, start) << np.uint64(64 - 8 * (end - i)) >> np.uint64(64 - 8 * (end - i))
    else:
        for k in range(end - i):
            chunk |= np.uint64(text[i + k]) << np.uint64(8 * k)
    h = (h ^ chunk) * multiplier
    h = (h ^ (h >> np.uint64(32)) ^ np.uint64(end - start)) * multiplier
    return h ^ (h >> np.uint64(29))


@njit(nogil=True, cache=True, forceinline=True)
def is_equal(a: U8, at: int, b: U8, start: int, end: int) -> bool:
    """Whether ``a`` holds b[start:end] at ``at``."""
    size = end - start
    if size < 8:
        if size and at + 8 <= a.size and start + 8 <= b.size:
            return bool((load64(a, at) ^ load64(b, start)) << np.uint64(64 - 8 * size) == np.uint64(0))
        for k in range(size):  # noqa: SIM110 (a generator would not compile)
            if a[at + k] != b[start + k]:
                return False
        return True
    k = 0
    while k + 8 <= size:
        if load64(a, at + k) != load64(b, start + k):
            return False
        k += 8
    return bool(load64(a, at + size - 8) == load64(b, end - 8))


@njit(nogil=True, cache=True, forceinline=True)
def copy_bytes(source: U8, start: int, end: int, into: U8, at: int) -> int:
    """Copy source[start:end] to ``at``; returns where the copy ends."""
    size = end - start
    if size < 8:
        for k in range(size):
            into[at + k] = source[start + k]
        return at + size
    k = 0
    while k + 8 <= size:
        store64(into, at + k, load64(source, start + k))
        k += 8
    store64(into, at + size - 8, load64(source, end - 8))
    return at + size


@njit(nogil=True, cache=True)
def text_tags(seed: np.uint64, multiplier: np.uint64, text: U8, starts: I64, ends: I64, tags: U32) -> None:
    """Combine each tag with 32 bits of the keyed hash of a text; equal texts keep different tags different."""
    text = uncounted(text)
    for i in range(starts.size):
        h = text_hash(seed, multiplier, text, starts[i], ends[i])
        tags[i] ^= np.uint32(h >> np.uint64(32))
