"""Errors of the stream that its callers tell apart by class."""

from spm.errors import Refused, SpmError


class PositionGone(SpmError):
    """The events after a position are not all kept any more; ``oldest``: from where a reader can go on."""

    def __init__(self, position: int, oldest: int) -> None:
        self.oldest = oldest
        super().__init__(
            f"events after position {position} were deleted when their retention was over; "
            f"the oldest position to go on from is {oldest}"
        )


class ConsumerGone(Refused):
    """A consumer that left, or whose lease ran out: its keys belong to others now, and nothing of it counts."""


class TooSlow(SpmError):
    """An event could not be committed in time; it is not stored."""
