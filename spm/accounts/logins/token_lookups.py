"""Bounds how often tokens of nobody make a process read the database: anybody can make up as many as they like.

Each such look-up takes one of ``NOBODY_LOOKUPS_MAX`` turns, which come back at ``NOBODY_LOOKUPS_PER_S``. While there is
none, a token is looked up only if its hash is among those of all tokens, which are read once and then followed by at
most one small query a second. So a token that exists is always looked up, from whatever address it comes. Enter by
``TokenLookups.may_look_up``; report by ``found_nobody``.
"""

import threading
from collections.abc import Callable, Iterable

Row = tuple[int, bytes]  # (the id of a token, its hash)

NOBODY_LOOKUPS_MAX = 200  # at once, of one process: senders of a site whose tokens were all revoked
NOBODY_LOOKUPS_PER_S = 50.0
FOLLOW_EVERY_S = 1.0  # a new token of another process is known then, while strangers ask
KNOWN_MAX = 1_000_000  # tokens of a site; with more, each is looked up
_BYTES = 8  # of a hash that are remembered: 100 bytes a token
_OVERLAP = 1_000  # ids that are read again: a transaction may commit after one with a greater id


class TokenLookups:
    """The turns of one process. Thread-safe. ``read_after``: the tokens with a greater id."""

    def __init__(self, read_after: Callable[[int], Iterable[Row]]) -> None:
        self._read_after = read_after
        self._lock = threading.Lock()
        self._turns, self._counted_s = float(NOBODY_LOOKUPS_MAX), float("-inf")
        self._known: set[bytes] = set()
        self._last_id, self._followed_s = 0, float("-inf")

    def may_look_up(self, digest: bytes, now_s: float) -> bool:
        """Whether the database should be asked for this hash; if not, it is nobody's."""
        with self._lock:
            self._count_turns(now_s)
            if self._turns >= 1 or len(self._known) >= KNOWN_MAX:
                return True
            if digest[:_BYTES] not in self._known and now_s - self._followed_s >= FOLLOW_EVERY_S:
                self._followed_s = now_s
                self._follow()
            return digest[:_BYTES] in self._known

    def add(self, digest: bytes) -> None:
        """Know the hash of a token that this process makes."""
        with self._lock:
            self._known.add(digest[:_BYTES])

    def found_nobody(self, now_s: float) -> None:
        """Take a turn: the database knew no token of a hash."""
        with self._lock:
            self._count_turns(now_s)
            self._turns = max(0.0, self._turns - 1)

    def _count_turns(self, now_s: float) -> None:
        if self._turns < NOBODY_LOOKUPS_MAX:
            came = (now_s - self._counted_s) * NOBODY_LOOKUPS_PER_S
            self._turns = min(NOBODY_LOOKUPS_MAX, self._turns + max(0.0, came))
        self._counted_s = now_s

    def _follow(self) -> None:
        for number, digest in self._read_after(max(0, self._last_id - _OVERLAP)):
            self._known.add(digest[:_BYTES])
            self._last_id = max(self._last_id, number)
