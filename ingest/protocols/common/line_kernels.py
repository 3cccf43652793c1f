"""What kernels over lines and items share with ``line_reader``: their state, their rules, and how a line ends.

A kernel reads line after line and stops, with nothing half done, at the first one that is not plain or names a series
that the cache does not know; the exact reader reads that one line, and the kernel continues behind it. So a kernel
never rejects, never explains and never guesses: what it reads, it reads exactly as the exact reader would.

The disk cache of compiled code looks at the caller's file only, so that one kernel's change makes all of them be
compiled anew (``bin/lib.sh``).
"""

from numba import njit

from spm.arrays import U8

END, STOPPED, FULL = 0, 1, 2  # why a kernel returned: all is read, a line for the exact reader, no more room
POSITION, LINE, COUNT, TIMELESS = 0, 1, 2, 3  # its state: next byte, its line, samples, those without time
NOW, TIMES, PER, RAW_MAX, LINES_MAX, LENGTH_MAX = range(6)  # its rules: ms without time; raw × TIMES // PER

_NEWLINE, _RETURN = 10, 13


@njit(nogil=True, cache=True)
def line_end(body: U8, i: int) -> int:
    """The position of the newline if the line ends at ``i`` (perhaps by \\r\\n), else -1."""
    if body[i] == _RETURN:
        i += 1
    return i if body[i] == _NEWLINE else -1
