"""Compensated sums of many values, eight at a time.

Each step of such a sum needs the total of the step before it, so a single sum waits for four dependent additions per
value; eight sums, of every eighth value each, use the processor's vectors. The rounding errors of each of them, and of
their own sum, are computed exactly (Knuth's two-sum) and added up separately, so the result is that of one sum: rounded
once. The order of additions matters only where a partial sum leaves the range of floats and a later one is within it.
Compilers may not do this by themselves, since it changes the order of additions.
"""

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from spm.arrays import F64

_LANES = 8
_WIDE_FROM = 4 * _LANES  # values: adding up the lanes costs as much as adding sixteen values
_PAIRS: Any = types.UniTuple  # of the totals of the lanes and their rounding errors
_VECTOR, _NUMBER = ir.VectorType(ir.DoubleType(), _LANES), ir.IntType(64)


@njit(cache=True, nogil=True, error_model="numpy")
def compensated_sum(values: F64, total: float) -> Any:
    """Return (total, its rounding error) after all values; meaningless if the total is not finite."""
    error, first = 0.0, 0
    if len(values) >= _WIDE_FROM:
        first = len(values) & ~(_LANES - 1)
        lanes = _lanes(values.ctypes.data, first)
        for lane in range(_LANES):
            total, rest = _two_sum(total, lanes[lane])
            error += rest + lanes[_LANES + lane]
    for i in range(first, len(values)):
        total, rest = _two_sum(total, values[i])
        error += rest
    return total, error


@njit(cache=True, nogil=True, error_model="numpy")
def _two_sum(total: float, value: float) -> Any:
    """Return (the sum, its rounding error) without comparing the two, so that no branch is mispredicted."""
    rounded = total + value
    part = rounded - total
    return rounded, (total - (rounded - part)) + (value - part)


def _typed_lanes(typingctx: Any, address: Any, count: Any) -> Any:
    return _PAIRS(types.float64, 2 * _LANES)(types.int64, types.int64), _build_lanes


def _build_lanes(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Build code for the totals of the lanes, then their errors; the count is a multiple of the lanes and not zero."""
    before, loop, after = builder.block, builder.append_basic_block("lanes"), builder.append_basic_block("added")
    values = builder.inttoptr(arguments[0], _VECTOR.as_pointer())
    steps = builder.udiv(arguments[1], ir.Constant(_NUMBER, _LANES))
    builder.branch(loop)

    builder.position_at_end(loop)
    step, total, errors = builder.phi(_NUMBER), builder.phi(_VECTOR), builder.phi(_VECTOR)
    value = builder.load(builder.gep(values, [step]), align=8)
    rounded = builder.fadd(total, value)
    part = builder.fsub(rounded, total)
    error = builder.fadd(builder.fsub(total, builder.fsub(rounded, part)), builder.fsub(value, part))
    more, following = builder.fadd(errors, error), builder.add(step, ir.Constant(_NUMBER, 1))
    for moving, goes_on in ((step, following), (total, rounded), (errors, more)):
        moving.add_incoming(ir.Constant(moving.type, None), before)
        moving.add_incoming(goes_on, loop)
    builder.cbranch(builder.icmp_unsigned("<", following, steps), loop, after)

    builder.position_at_end(after)
    lanes = [ir.Constant(ir.IntType(32), lane) for lane in range(_LANES)]
    parts = [builder.extract_element(column, lane) for column in (rounded, more) for lane in lanes]
    return context.make_tuple(builder, signature.return_type, parts)


_lanes: Any = intrinsic(_typed_lanes)
