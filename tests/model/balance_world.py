"""A small world for the balance: processes that accept, a queue, writers, dead letters, runs, watermarks; the truth.

Every act goes through the real code (``Stamper``, ``Writer``, ``dead_letter_steps``, ``marks``, ``pending``) over a
store in memory; the queue is a list. ``World.places`` is the truth about every message, kept beside it in plain Python,
as far as announcements and rows can tell it: what nobody has announced yet, and no row names, is not accepted yet.
"""

import random
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from ingest.accept.stamper import Stamper, take_process
from ingest.accounting.watermark_keeper import advance_watermarks
from ingest.writer import Writer, dead_letter_steps
from spm import message_ids
from spm.clock import FakeClock
from spm.limits import HOUR_MS, PROCESS_GONE_S
from spm.store.backends.memory import MemoryBackend
from spm.store.encoding import blocks
from spm.store.keys import PlacementTable
from spm.store.ledger import commit_records, watermarks
from spm.store.ledger.balance import Balance, read_balance
from spm.store.ledger.watermarks import Announcement, ProcessWatermarks
from spm.wire import Envelope, Parsed, SeriesTable
from tests.support.rows import APP, form

START_MS = 1_699_300_000_000
OPEN, QUEUED, STORED, DEAD, GONE = "open", "queued", "stored", "dead", "gone"


@dataclass
class Message:
    """One message and where it is."""

    envelope: Envelope
    place: str = OPEN

    @property
    def key(self) -> tuple[int, int, int]:
        stamp = self.envelope.stamp
        return stamp.process, stamp.ms, stamp.sequence


@dataclass
class World:
    """The small world that the module describes. ``draw`` decides everything."""

    draw: random.Random
    store: MemoryBackend = field(default_factory=MemoryBackend)
    clock: FakeClock = field(default_factory=lambda: FakeClock(START_MS))
    living: list[Stamper] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    announced: dict[int, Announcement] = field(default_factory=dict)
    next_number: int = 1
    paused: bool = False

    def __post_init__(self) -> None:
        self.writer = Writer(self.store, PlacementTable.single(16, 4))
        self.start()
        self.start()

    # --- acts -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """A new accepting process."""
        self.living.append(Stamper(take_process(self.store), self.clock))

    def accept(self) -> None:
        """A message, of one to three samples in one or two hours, perhaps with refused lines."""
        self.clock.advance(self.draw.choice([0, 1, 40, 3_000]))
        count = self.draw.randint(1, 3)
        names = [self.draw.randrange(12) for _ in range(count)]
        ts = [START_MS - self.draw.choice([0, HOUR_MS]) + i for i in range(count)]
        parsed = Parsed(
            SeriesTable.from_canonical([form(n) for n in names]),
            np.arange(count, dtype=np.int32),
            np.array(ts, np.int64),
            np.ones(count),
            rejected=self.draw.choice([0, 0, 2]),
        )
        name = message_ids.make(b"spool1", self.next_number)
        self.next_number += 1
        source = f"h{self.draw.randrange(3)}"
        acceptor = self.draw.choice(self.living)
        self.messages.append(Message(acceptor.stamp_message(app=APP, source=source, parsed=parsed, message_id=name)))

    def confirm(self) -> None:
        """The queue has a message that was open, and says so."""
        for message in self._some(OPEN):
            message.place = QUEUED
            self._acceptor(message).confirm(message.envelope)

    def confirm_unheard(self) -> None:
        """The queue has a message, but its process has no confirmation yet."""
        for message in self._some(OPEN):
            self.writer.write([message.envelope])
            message.place = STORED
            self._acceptor(message).confirm(message.envelope)

    def write(self) -> None:
        """A batch of what is queued is stored; sometimes it is written once more."""
        batch = self._some(QUEUED, self.draw.randint(1, 4))
        for _ in range(self.draw.choice([1, 1, 2]) if batch else 0):
            self.writer.write([message.envelope for message in batch])
        for message in batch:
            message.place = STORED

    def bury(self) -> None:
        """A queued message dies."""
        for message in self._some(QUEUED):
            self.store.put(dead_letter_steps(message.envelope, "poison"))
            message.place = DEAD

    def redeliver(self) -> None:
        """A dead message is stored as well: stored wins, unless a watermark or a record settled it before."""
        for message in self._some(DEAD):
            self.writer.write([message.envelope])
            process, ms, number = message.key
            known = watermarks.read(self.store, APP).get(process, ProcessWatermarks(process))
            if (ms, number) > known.watermark.place and watermarks.pack_place((ms, number)) not in known.adopted_stamps:
                message.place = STORED

    def roll(self) -> None:
        """A run takes some commit records: it puts the ledger row first and deletes the record afterwards."""
        for item in list(commit_records.scan(self.store, APP, list(range(16)))):
            if self.draw.random() < 0.5:
                commit, _, batch = commit_records.decode_ledger_row(item.cell, blocks.PENDING)
                row = commit_records.encode(commit, blocks.LEDGER, commit_records.STORED, batch)
                self.store.put(
                    [("ledger", [(commit_records.ledger_key(item.key.log(item.hour)), {commit_records.COLUMN: row})])]
                )
                if self.draw.random() < 0.8:  # else it dies in between
                    self.store.delete("pending", [(item.key.to_bytes(), [item.hour.to_bytes(4, "big")])])

    def announce(self) -> None:
        """A process announces what it accepted."""
        self._announce(self.draw.choice(self.living))

    def kill(self) -> None:
        """A process dies with what it has in hand: some of it is in the queue all the same."""
        victim = self.draw.choice(self.living)
        self.living.remove(victim)
        for message in self.messages:
            if message.place == OPEN and message.envelope.stamp.process == victim.process:
                message.place = self.draw.choice([GONE, QUEUED])
        self.start()

    def advance_watermarks(self) -> None:
        """The keeper runs: watermarks move, stragglers are adopted."""
        advance_watermarks(self.store, APP, self.clock.now_ms())

    def pause(self) -> None:
        """Once, let so much time pass that silent processes count as gone; live ones announce everything before."""
        if not self.paused:
            self.paused = True
            for acceptor in self.living:
                self._announce(acceptor)
            self.clock.advance((PROCESS_GONE_S + 10) * 1000)

    ACTS = {
        "accept": 10,
        "confirm": 8,
        "confirm_unheard": 1,
        "write": 8,
        "bury": 2,
        "redeliver": 1,
        "roll": 3,
        "announce": 6,
        "kill": 1,
        "advance_watermarks": 4,
        "pause": 1,
    }

    def act(self) -> str:
        """One of them, at random; its name."""
        name = self.draw.choices(list(self.ACTS), list(self.ACTS.values()))[0]
        getattr(self, name)()
        return name

    def settle_all(self) -> None:
        """Everything that can come to its end does, and everybody living says so."""
        while self._some(OPEN):
            self.confirm()
        while self._some(QUEUED):
            self.write()
        for acceptor in self.living:
            self._announce(acceptor)

    # --- the truth ----------------------------------------------------------------------------------------------------

    def account(self) -> Balance:
        """What the code says."""
        return read_balance(self.store, APP, self.clock.now_ms())

    def truth(self) -> Counter[str]:
        """Messages by place, of those that were announced, and of those that came to an end."""
        matching: Counter[str] = Counter()
        known = self._known()
        for message in self.messages:
            if self._is_told(message) or (message.place in (STORED, DEAD) and message.key[0] in known):
                matching[message.place] += 1
        return matching

    def samples(self, place: str) -> int:
        """Return the samples of the messages in a place that ``truth`` counts; rejected lines are not among them."""
        known = self._known()
        return sum(len(m.envelope) for m in self.messages if m.place == place and m.key[0] in known)

    def _known(self) -> set[int]:
        """Return the processes that announced something, or died before it and were adopted by the keeper."""
        return {*self.announced, *watermarks.read(self.store, APP)}

    def _is_told(self, message: Message) -> bool:
        process, *place = message.key
        return process in self.announced and tuple(place) <= self.announced[process].place

    def _announce(self, acceptor: Stamper) -> None:
        for app, count in acceptor.take_changes(10):
            word = Announcement(
                count.last.ms,
                count.last.sequence,
                count.messages,
                count.samples,
                count.rejected,
                count.open_messages,
                count.open_samples,
                self.clock.now_ms(),
            )
            watermarks.announce(self.store, app, acceptor.process, word)
            self.announced[acceptor.process] = word

    def _some(self, place: str, most: int = 1) -> list[Message]:
        matching = [m for m in self.messages if m.place == place]
        return self.draw.sample(matching, min(most, len(matching)))

    def _acceptor(self, message: Message) -> Stamper:
        return next(a for a in self.living if a.process == message.envelope.stamp.process)
