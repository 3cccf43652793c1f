"""Counts arrivals of bodies, and knows which senders are about to send again. ``push_batcher`` decides by it how long a
batch waits for further bodies. Enter by ``Linger``, from the event loop only.

Agents send every few seconds whatever the answer took, so while many of them send, waiting joins their bodies. A few
senders gain nothing by it, however often they send: ``has_many`` counts the senders, not the bodies alone, and another
organisation as one sender, so that nobody's bodies wait because another one has thousands of agents. A loader
sends its next body when it has the answer to the one before: nothing comes from it while its body waits here. Such
senders are recognised by their returns. A connection that sends within ``JOIN_RETURN_S`` of its answer has returned,
and is expected to return after the next one. A batch that has bodies of such senders waits for those that are still
expected: until ``JOIN_QUIET_GAPS`` mean gaps have brought no body, and ``JOIN_LINGER_S`` at most. Below
``JOIN_FROM_PER_S`` bodies a second nothing waits.
"""

from collections.abc import Hashable

from spm import limits
from spm.clock import Clock

_NOBODY: frozenset[Hashable] = frozenset()


class Linger:
    """Counts arrivals, and knows which senders are about to send again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._second, self._count, self._before = 0, 0, 0
        self._senders: dict[int, set[Hashable]] = {}  # of this second, by organisation, up to as many as are many
        self._senders_before: dict[int, set[Hashable]] = {}  # of the second before
        self._answered: dict[Hashable, tuple[float, bool]] = {}  # when; whether it is expected. The oldest first
        self._expected = 0

    def note_arrival(self, sender: Hashable, organisation: int) -> bool:
        """Count a body; return whether its sender has returned after its last answer."""
        now = self._clock.monotonic()
        self._turn(now)
        self._count += 1
        senders = self._senders.get(organisation)
        if senders is None:
            self._senders[organisation] = {sender}
        elif len(senders) < limits.JOIN_FROM_SENDERS:
            senders.add(sender)
        self._drop_overdue(now)
        answered = self._answered.pop(sender, None)
        self._expected -= answered is not None and answered[1]
        return answered is not None

    def note_answer(self, sender: Hashable, *, expected: bool) -> None:
        """Note when a sender got its answer, and whether it will return at once, as it did before."""
        if sender is None:  # it cannot be recognised
            return
        now = self._clock.monotonic()
        self._drop_overdue(now)
        self._expected -= self._answered.pop(sender, (0.0, False))[1]
        self._answered[sender] = (now, expected)
        self._expected += expected

    def awaits_returns(self) -> bool:
        """Return whether senders that return at once are still to come."""
        self._drop_overdue(self._clock.monotonic())
        return self._expected > 0

    def per_s(self) -> float:
        """Return the arrivals of about the last second."""
        now = self._clock.monotonic()
        self._turn(now)
        return self._count + self._before * (1 - now % 1)

    def has_many(self, organisation: int) -> bool:
        """Return whether many senders sent in about the last second, as the organisation counts them: its own, of which
        all that cannot be recognised are one, and each other organisation.
        """
        self._turn(self._clock.monotonic())
        now, before = self._senders, self._senders_before
        own = now.get(organisation, _NOBODY) | before.get(organisation, _NOBODY)
        others = max(len(now) - (organisation in now), len(before) - (organisation in before))
        return len(own) + others >= limits.JOIN_FROM_SENDERS

    def _turn(self, now: float) -> None:
        second = int(now)
        if second != self._second:
            follows = second == self._second + 1
            self._before, self._senders_before = (self._count, self._senders) if follows else (0, {})
            self._second, self._count, self._senders = second, 0, {}

    def _drop_overdue(self, now: float) -> None:
        while self._answered:
            sender = next(iter(self._answered))
            at, expected = self._answered[sender]
            if now - at <= limits.JOIN_RETURN_S:
                return
            del self._answered[sender]
            self._expected -= expected
