"""The frontier F: the time up to which everything that was accepted is known, by no clock but the judge's. Pure.

1. The judge takes its time w, THEN reads the rounds of all accepting processes, THEN their watermarks. Both are kept
   as a probe.
2. A process's round two numbers later began after w, so what it had accepted by then is announced. Where its
   announcements stood when the judge first saw such a round, its watermark must come.
3. F is the greatest w of a probe of which this holds for all processes. One that ended, or is silent for so long that
   it counts as gone, must have come to its last announcement, unless that is too old to settle ever.

Silent processes are in a probe too: they may only have been stopped. Enter by ``Frontier.look``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from alerts.judging import limits

Place = tuple[int, int]  # (ms, sequence) of a stamp


@dataclass(frozen=True, slots=True)
class AcceptorSight:
    """One accepting process as a judge sees it for one app.

    ``announced``: its newest announcement; ``settled``: its watermark. ``is_hopeless``: its newest announcement is so
    old that what is missing from it is lost.
    """

    round: int
    at_ms: int
    has_ended: bool = False
    is_announced: bool = True
    announced: Place | None = None
    settled: Place = (0, 0)
    is_hopeless: bool = False

    @property
    def is_settled(self) -> bool:
        """Whether everything it announced is known, or never will be."""
        return self.announced is None or self.settled >= self.announced or self.is_hopeless


@dataclass(frozen=True, slots=True)
class _Probe:
    """A time, and the round of each process then. ``places``: where the watermark of a process must come."""

    at_ms: int
    rounds: Mapping[int, int]
    places: dict[int, Place | None] = field(default_factory=dict)


class Frontier:
    """What one judge remembers of the rounds of an app's accepting processes."""

    def __init__(self) -> None:
        self._probes: list[_Probe] = []
        self._changes: dict[int, tuple[int, int]] = {}  # process → its round, and when the judge first saw that
        self._frontier_ms = 0

    def look(self, at_ms: int, acceptors: Mapping[int, AcceptorSight]) -> int:
        """Take a probe, of which ``at_ms`` was taken before anything was read; returns F, or 0 if none is known."""
        for process, sight in acceptors.items():
            if self._changes.get(process, (-1, 0))[0] != sight.round:
                self._changes[process] = sight.round, at_ms
        self._probes.append(_Probe(at_ms, {process: sight.round for process, sight in acceptors.items()}))
        if len(self._probes) > limits.PROBES_MAX:
            del self._probes[len(self._probes) // 2]
        passed = [probe for probe in self._probes if self._has_passed(probe, at_ms, acceptors)]
        if passed:
            self._frontier_ms = passed[-1].at_ms
            self._probes = [probe for probe in self._probes if probe.at_ms > self._frontier_ms]
        return min(self._frontier_ms, at_ms)

    def is_gone(self, process: int, sight: AcceptorSight, at_ms: int) -> bool:
        """Whether a process has ended, or was silent for long by the judge's own time."""
        since_ms = self._changes.get(process, (0, at_ms))[1]
        return sight.has_ended or at_ms - since_ms >= limits.ACCEPTOR_SILENT_MS

    def _has_passed(self, probe: _Probe, at_ms: int, acceptors: Mapping[int, AcceptorSight]) -> bool:
        """Whether all processes of a probe have passed it; notes where watermarks must come first."""
        for process, number in probe.rounds.items():
            sight = acceptors.get(process)
            if sight is not None and process not in probe.places and sight.round >= number + 2 and sight.is_announced:
                probe.places[process] = sight.announced
        return all(self._has_come(probe, process, acceptors.get(process), at_ms) for process in probe.rounds)

    def _has_come(self, probe: _Probe, process: int, sight: AcceptorSight | None, at_ms: int) -> bool:
        if sight is None:
            return False
        if self.is_gone(process, sight, at_ms):
            return sight.is_settled
        if process not in probe.places:
            return False
        place = probe.places[process]
        return place is None or sight.settled >= place


def median_now(judge_ms: int, acceptors_ms: list[int], sources_ms: list[int]) -> int:
    """Return the median of the judge's clock, the accepting processes' and the sources'.

    Any one of the three families may be wrong by anything. Without accepting processes the judge's clock stands for
    them; without sources the lesser of the two others counts.
    """
    acceptor_ms = sorted(acceptors_ms)[(len(acceptors_ms) - 1) // 2] if acceptors_ms else judge_ms
    if not sources_ms:
        return min(judge_ms, acceptor_ms)
    source_ms = sorted(sources_ms)[(len(sources_ms) - 1) // 2]
    return sorted((judge_ms, acceptor_ms, source_ms))[1]
