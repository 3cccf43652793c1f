"""The account against the sender's log: what both must agree on, in the middle of a storm and when it is over.

``Watch`` reads the account over and over while processes die, and keeps its marks; ``disagreements`` compares one with
the log and with what stands in the store, and answers sentences, none when all is well.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from ingest.accounting.watermark_keeper import advance_watermarks
from spm.clock import SystemClock
from spm.errors import SpmError
from spm.store.backends.base import Backend
from spm.store.ledger.balance import Balance, read_balance
from spm.store.ledger.commit_columns import CommitCellCache
from tests.chaos.line.checker import ACKED, Sent
from tests.support.stored import Copies

_clock = SystemClock()


def disagreements(sent: Sequence[Sent], copies: Copies, balance: Balance) -> list[str]:
    """What is wrong with the account of a line that has come to rest."""
    stamps = {stamp: count for by_stamp in copies.values() for stamp, count in by_stamp.items()}
    acked = sum(one.outcome == ACKED for one in sent)
    attempts = sum(one.stamps_max for one in sent)
    messages, samples = balance.messages, balance.samples
    claims = {
        f"does not add up: {balance.discrepancies}, {balance.damaged} damaged": balance.adds_up,
        f"{messages.stored} messages stored, {len(stamps)} stamps in the store": messages.stored == len(stamps),
        f"{samples.stored} samples stored, {sum(stamps.values())} in the store": samples.stored == sum(stamps.values()),
        f"{messages.stored} stored, {acked} acknowledged": messages.stored >= acked,
        f"{messages.accepted} accepted in {attempts} attempts": messages.accepted <= attempts,
        f"{messages.queued} queued at rest": messages.queued == 0,
        f"{messages.in_flight} in flight at rest": messages.in_flight == 0,
        f"{samples.not_stored} lost of good samples": samples.not_stored == 0,
    }
    return [text for text, holds in claims.items() if not holds]


@dataclass(slots=True)
class Watch:
    """Reads the balance of an app again and again, until it is stopped."""

    backend: Backend
    app: int
    pause_s: float = 0.3
    keeps: bool = True  # nobody else moves marks
    looks: int = 0
    waited: int = 0  # looks at which something was on its way
    wrong: list[str] = field(default_factory=list)
    cells: CommitCellCache = field(default_factory=CommitCellCache)
    stopping: threading.Event = field(default_factory=threading.Event)
    accepted: int = 0

    def run(self) -> None:
        """Until ``stopping`` is set."""
        while not self.stopping.wait(self.pause_s):
            self.look()

    def look(self) -> Balance | None:
        """One look; what must never be is noted. A store that is away is no fault of the account's."""
        try:
            if self.keeps and self.looks % 3 == 0:
                advance_watermarks(self.backend, self.app, _clock.now_ms(), cells=self.cells)
            balance = read_balance(self.backend, self.app, _clock.now_ms(), cells=self.cells)
        except SpmError:
            return None
        self.looks += 1
        self.waited += balance.messages.waiting > 0
        if balance.discrepancies:
            self.wrong.append(f"look {self.looks} does not add up: {balance.discrepancies}")
        if balance.messages.accepted < self.accepted:
            self.wrong.append(f"look {self.looks}: {self.accepted} were accepted, now {balance.messages.accepted}")
        self.accepted = balance.messages.accepted
        return balance
