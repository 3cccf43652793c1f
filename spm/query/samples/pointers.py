"""Arrays by their addresses, for kernels that read many arrays at once.

A kernel call costs about a microsecond per array argument; a query over a hundred pages would spend its time there. So
the kernel gets one column of addresses, and its caller keeps the arrays alive. Never write through these addresses.
Enter by ``address_of``, and in kernels by ``floats_at``, ``integers_at``, ``unsigned_at`` and ``shorts_at``.
"""

from typing import Any

import numpy as np
from numba import carray, njit, types  # type: ignore[attr-defined]
from numba.extending import intrinsic

from spm.arrays import F64, I32, I64, U64

_POINTER: Any = types.CPointer


def address_of(column: np.ndarray) -> int:
    """The address of an array's first element; it must be contiguous, and stay alive as long as the address is used."""
    address: int = column.__array_interface__["data"][0]
    return address


def _floats(typingctx: Any, address: Any) -> Any:
    return _POINTER(types.float64)(types.int64), _as_pointer


def _integers(typingctx: Any, address: Any) -> Any:
    return _POINTER(types.int64)(types.int64), _as_pointer


def _unsigned(typingctx: Any, address: Any) -> Any:
    return _POINTER(types.uint64)(types.int64), _as_pointer


def _shorts(typingctx: Any, address: Any) -> Any:
    return _POINTER(types.int32)(types.int64), _as_pointer


def _as_pointer(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))


_float_pointer: Any = intrinsic(_floats)
_integer_pointer: Any = intrinsic(_integers)
_unsigned_pointer: Any = intrinsic(_unsigned)
_short_pointer: Any = intrinsic(_shorts)


@njit(cache=True, nogil=True)
def floats_at(address: int, count: int) -> F64:
    """``count`` float64 from an address on."""
    return carray(_float_pointer(address), count)


@njit(cache=True, nogil=True)
def integers_at(address: int, count: int) -> I64:
    """``count`` int64 from an address on."""
    return carray(_integer_pointer(address), count)


@njit(cache=True, nogil=True)
def unsigned_at(address: int, count: int) -> U64:
    """``count`` uint64 from an address on."""
    return carray(_unsigned_pointer(address), count)


@njit(cache=True, nogil=True)
def shorts_at(address: int, count: int) -> I32:
    """``count`` int32 from an address on."""
    return carray(_short_pointer(address), count)
