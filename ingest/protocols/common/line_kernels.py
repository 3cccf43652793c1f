"""The contract between ``line_reader`` and the kernels over lines and items: their state, their rules, the line end.

A kernel reads line after line. It stops before the first line that is not plain or that names a series unknown to the
cache; the exact reader reads that line, and the kernel continues after it. So a kernel never rejects, never explains
and never guesses: it reads a line exactly as the exact reader would, or not at all.

The disk cache of compiled code checks the caller's file only. So after a change of one kernel all are compiled again
(``bin/lib.sh``).
"""

from numba import njit

from spm.arrays import U8

END, STOPPED, FULL = 0, 1, 2  # status: the body is read, the exact reader must read a line, the columns are full
POSITION, LINE, COUNT, TIMELESS = 0, 1, 2, 3  # state: next byte, its line, samples, samples without a time
STATUS, SERIES, STATES = 4, 5, 6  # of one of many bodies: its status, its series
NOW, TIMES, PER, RAW_MAX, LINES_MAX, LENGTH_MAX = range(6)  # rules: ms for samples without a time; raw × TIMES // PER

_NEWLINE, _RETURN = 10, 13


@njit(nogil=True, cache=True)
def line_end(body: U8, i: int) -> int:
    """Returns the position of the newline if the line ends at ``i`` (also with \\r\\n), else -1."""
    if body[i] == _RETURN:
        i += 1
    return i if body[i] == _NEWLINE else -1
