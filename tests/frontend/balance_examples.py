"""An app whose account has something of everything: for tests of pages, of the interface and for pictures."""

from dataclasses import dataclass

import numpy as np

from ingest.accept.stamper import Stamper, take_process
from ingest.accounting.watermark_keeper import advance_watermarks
from ingest.models import RejectedLine
from ingest.writer import Writer, dead_letter_steps
from spm import message_ids
from spm.clock import FakeClock
from spm.limits import HOUR_MS
from spm.store.backends import open_backend
from spm.store.backends.base import Backend
from spm.store.keys import PlacementTable
from spm.store.ledger import watermarks
from spm.store.ledger.watermarks import Announcement
from spm.wire import Envelope, Parsed, SeriesTable, canonical
from tests.support import notes

SPOOL = b"spool1"


@dataclass(slots=True)
class Book:
    """One accepting process of an app, which is told what to do with each message."""

    store: Backend
    app: int
    clock: FakeClock
    acceptor: Stamper
    writer: Writer

    @classmethod
    def open(cls, store_url: str, app: int, now_ms: int) -> "Book":
        """A new process on this store, at this time."""
        store, clock = open_backend(store_url), FakeClock(now_ms)
        return cls(store, app, clock, Stamper(take_process(store), clock), Writer(store, PlacementTable()))

    def accept(self, source: str, *, samples: int = 10, rejected: int = 0, number: int = 0) -> Envelope:
        """A message of now; with a ``number``, its id says so."""
        table = SeriesTable.from_canonical([canonical("cpu", {"host": source, "core": str(i)}) for i in range(samples)])
        now = self.clock.now_ms()
        parsed = Parsed(
            table,
            np.arange(samples, dtype=np.int32),
            np.full(samples, now, np.int64),
            np.ones(samples),
            rejected=rejected,
        )
        name = message_ids.make(SPOOL, number) if number else now.to_bytes(16, "big")
        notes.see_source(self.app, source, now)
        return self.acceptor.stamp_message(app=self.app, source=source, parsed=parsed, message_id=name)

    def store_all(self, *envelopes: Envelope) -> None:
        """The queue had them, and a worker wrote them."""
        self.queue(*envelopes)
        self.writer.write(envelopes)

    def queue(self, *envelopes: Envelope) -> None:
        """The queue has them."""
        for envelope in envelopes:
            self.acceptor.confirm(envelope)

    def bury(self, envelope: Envelope, cause: str = "its series' id already stands for another series") -> None:
        """It died on its way."""
        self.queue(envelope)
        self.store.put(dead_letter_steps(envelope, cause))

    def announce(self, *, at_ms: int | None = None) -> None:
        """Tell what was accepted, and let the keeper look."""
        for app, c in self.acceptor.take_changes(10):
            at = self.clock.now_ms() if at_ms is None else at_ms
            word = Announcement(
                c.last.ms, c.last.sequence, c.messages, c.samples, c.rejected, c.open_messages, c.open_samples, at
            )
            watermarks.announce(self.store, app, self.acceptor.process, word)
        advance_watermarks(self.store, self.app, self.clock.now_ms())


def fill(store_url: str, app: int, now_ms: int) -> Book:
    """A day of three sources: most is stored; some was refused, is dead, waits, is in hand, or never came."""
    book = Book.open(store_url, app, now_ms - 22 * HOUR_MS)
    number = 0
    for hour in range(22):
        for minute in range(0, 60, 20):
            book.clock.jump(now_ms - (22 - hour) * HOUR_MS + minute * 45_000 - book.clock.now_ms())
            number += 1 if (hour, minute) != (12, 20) else 38  # 37 messages never came
            envelopes = [
                book.accept("web-1", samples=40 + hour, number=number),
                book.accept("web-2", samples=25, rejected=3 if hour == 20 else 0),
            ]
            book.store_all(*envelopes)
            book.announce()
        if hour in (4, 9):
            book.bury(book.accept("db-1 =cmd|'/C calc'!A0", samples=12))
        book.announce()
    book.clock.jump(now_ms - 90_000 - book.clock.now_ms())
    book.queue(book.accept("web-1", samples=60), book.accept("web-2", samples=25))
    book.accept("web-2", samples=5)
    book.announce()
    RejectedLine.objects.create(
        app_id=app,
        time_ms=now_ms - 60_000,
        source="web-2",
        line=3,
        reason="a field without a value",
        example="cpu,host=<b>web-2</b> usage= 1700000000",
    )
    return book
