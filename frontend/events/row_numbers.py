"""Which rows of a growing table are new, although a transaction may show a lower number after a higher one.

PostgreSQL gives a row its number when it is written, and shows it when its transaction ends. So a number that is
missing below the highest one may still come: it is looked for until ``EVENTS_GAP_S`` have passed. Pure. Enter by
``RowNumbers``.
"""

from collections.abc import Sequence

from spm import limits


class RowNumbers:
    """The numbers of one table that are known, from the time of the first look on."""

    def __init__(self, newest: Sequence[int], now_s: float) -> None:
        """``newest``: the numbers of the newest ``EVENTS_GAPS_MAX`` rows, ascending; older ones are not looked for."""
        self.highest = newest[0] - 1 if len(newest) >= limits.EVENTS_GAPS_MAX else 0
        self._gaps: dict[int, float] = {}  # missing number -> until when it is looked for
        self.note(newest, now_s)

    @property
    def gaps(self) -> list[int]:
        """The missing numbers that may still come."""
        return list(self._gaps)

    @property
    def settled(self) -> int:
        """The number up to which all rows are known."""
        return min(self._gaps) - 1 if self._gaps else self.highest

    def note(self, numbers: Sequence[int], now_s: float) -> None:
        """Note rows, ascending, that were read as above ``highest`` or among ``gaps``."""
        for number in numbers:
            if number > self.highest:
                first = max(self.highest + 1, number - limits.EVENTS_GAPS_MAX)
                self._gaps |= dict.fromkeys(range(first, number), now_s + limits.EVENTS_GAP_S)
                self.highest = number
            else:
                self._gaps.pop(number, None)
        over = [number for number, until in self._gaps.items() if until <= now_s]
        excess = sorted(self._gaps.keys() - set(over))[: -limits.EVENTS_GAPS_MAX]
        for number in (*over, *excess):
            del self._gaps[number]
