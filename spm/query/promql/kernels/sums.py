"""Compensated sums of many values, eight at a time.

A step of such a sum needs the total of the step before it, so one sum alone goes at the speed of four additions after
each other; eight sums, of every eighth value each, go at the speed of the processor's vectors. What each of them and
their own sum lose by rounding is exact (Knuth's two-sum) and is added up apart, so the result is that of one sum:
rounded once. Only where a sum leaves the range of floats on the way and comes back does the order tell. Compilers may
not do this by themselves, since it changes the order of additions.
"""

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from spm.arrays import F64

_LANES = 8
_WIDE_FROM = 4 * _LANES  # values: adding up the lanes costs as much as adding sixteen of them
_PAIRS: Any = types.UniTuple  # of each lane's total and what it has lost
_VECTOR, _NUMBER = ir.VectorType(ir.DoubleType(), _LANES), ir.IntType(64)


@njit(cache=True, nogil=True, error_model="numpy")
def summed(values: F64, total: float) -> Any:
    """(total, what rounding has lost of it) after all values; meaningless when the total is not finite."""
    lost, first = 0.0, 0
    if len(values) >= _WIDE_FROM:
        first = len(values) & ~(_LANES - 1)
        lanes = _lanes(values.ctypes.data, first)
        for lane in range(_LANES):
            total, part = _two_sum(total, lanes[lane])
            lost += part + lanes[_LANES + lane]
    for i in range(first, len(values)):
        total, part = _two_sum(total, values[i])
        lost += part
    return total, lost


@njit(cache=True, nogil=True, error_model="numpy")
def _two_sum(total: float, value: float) -> Any:
    """(their sum, what rounding has lost of it), without asking which is larger: no branch is guessed wrong."""
    found = total + value
    part = found - total
    return found, (total - (found - part)) + (value - part)


def _of_lanes(typingctx: Any, address: Any, count: Any) -> Any:
    return _PAIRS(types.float64, 2 * _LANES)(types.int64, types.int64), _added_lanes


def _added_lanes(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """The totals of the lanes, then what each has lost, of a count (a multiple of the lanes, not zero) of values."""
    before, loop, after = builder.block, builder.append_basic_block("lanes"), builder.append_basic_block("added")
    values = builder.inttoptr(arguments[0], _VECTOR.as_pointer())
    steps = builder.udiv(arguments[1], ir.Constant(_NUMBER, _LANES))
    builder.branch(loop)

    builder.position_at_end(loop)
    step, total, lost = builder.phi(_NUMBER), builder.phi(_VECTOR), builder.phi(_VECTOR)
    value = builder.load(builder.gep(values, [step]), align=8)
    found = builder.fadd(total, value)
    part = builder.fsub(found, total)
    left = builder.fadd(builder.fsub(total, builder.fsub(found, part)), builder.fsub(value, part))
    more, following = builder.fadd(lost, left), builder.add(step, ir.Constant(_NUMBER, 1))
    for moving, goes_on in ((step, following), (total, found), (lost, more)):
        moving.add_incoming(ir.Constant(moving.type, None), before)
        moving.add_incoming(goes_on, loop)
    builder.cbranch(builder.icmp_unsigned("<", following, steps), loop, after)

    builder.position_at_end(after)
    lanes = [ir.Constant(ir.IntType(32), lane) for lane in range(_LANES)]
    parts = [builder.extract_element(column, lane) for column in (found, more) for lane in lanes]
    return context.make_tuple(builder, signature.return_type, parts)


_lanes: Any = intrinsic(_of_lanes)
