"""How much of a processor something takes, for claims about what must never take long."""

import time
from collections.abc import Callable
from typing import TypeVar

_LONG_S = 0.2  # a kernel that was never called may be compiled meanwhile, once
_T = TypeVar("_T")


def timed(act: Callable[[], _T]) -> tuple[_T, float]:
    """What it gives, and its seconds of CPU; what took long is done again, without what is done only once."""
    result, taken = _once(act)
    return (result, taken) if taken < _LONG_S else (result, min(taken, _once(act)[1]))


def _once(act: Callable[[], _T]) -> tuple[_T, float]:
    begun = time.process_time()
    result = act()
    return result, time.process_time() - begun
