"""The id of an event: the place in a stream after it, from which a listener goes on.

    1f3a9c2e-17-120.44.981.6.1767225600000.88
    ring     no seen: the newest alert, run, audit entry, source, data and stream position, by their own numbers

Ring and number are exact in the process that gave the id. In another process, or after a restart, what was seen says
which events of that process' ring are new to the listener. For listeners an id is opaque. Enter by ``EventId``.
"""

import re
from dataclasses import dataclass
from enum import IntEnum


class Feed(IntEnum):
    """Where events come from; each feed has growing numbers of its own."""

    ALERTS = 0
    RUNS = 1
    AUDIT = 2
    SOURCES = 3
    DATA = 4
    EVENTS = 5  # positions of the organisation's stream


TABLES = (Feed.ALERTS, Feed.RUNS, Feed.AUDIT, Feed.SOURCES)  # feeds whose numbers all apps share
Seen = tuple[int, ...]  # by feed
NOTHING_SEEN: Seen = (0,) * len(Feed)
_FORM = re.compile(
    r"([0-9a-f]{1,16})-([0-9]{1,15})-([0-9]{1,18}(?:\.[0-9]{1,18}){4,5})"
)  # ids of the version before have five numbers


@dataclass(frozen=True, slots=True)
class EventId:
    """A place in the stream of one app: the ring, the number of its last event, and what was seen by then."""

    ring: int
    number: int
    seen: Seen

    def __str__(self) -> str:
        return f"{self.ring:x}-{self.number}-{'.'.join(map(str, self.seen))}"

    @classmethod
    def parse(cls, text: str) -> "EventId | None":
        """Return the id in a text; ``None`` if it is none of ours."""
        match = _FORM.fullmatch(text)
        return match and cls(int(match[1], 16), int(match[2]), _whole(match[3]))


def _whole(text: str) -> Seen:
    """Read what was seen; feeds that the id does not know are at their beginning."""
    numbers = [int(number) for number in text.split(".")]
    return (*numbers, *NOTHING_SEEN[len(numbers) :])


def with_seen(seen: Seen, feed: Feed, number: int) -> Seen:
    """Return what was seen, with a feed's number, too; numbers never go back."""
    return (*seen[:feed], max(seen[feed], number), *seen[feed + 1 :])
