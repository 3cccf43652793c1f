"""A world in which messages are accepted, queued, written, lost, made dead letters, compacted and judged, all at once.

Real code does the work: ``StampAnnouncer`` stamps and announces, ``Writer`` stores samples and dead letters, ``Driver``
compacts, ``advance_watermarks`` moves watermarks, ``WatermarkVector`` and ``Visibility`` say what is known. The
queue, the processes' lives and their clocks are played. ``World.play`` raises ``Violation`` when a verdict differs when
it is judged again by its watermark vector, when the balance of any stamp does not add up, when a watermark is above an
unsettled stamp, or when a stored message is never known (PROTOCOL 24, 26).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from unittest.mock import patch

import numpy as np

from ingest.accept.announcer import StampAnnouncer
from ingest.accounting import dead_letter_review
from ingest.accounting.watermark_keeper import advance_watermarks
from ingest.writer import WriteBatch, Writer
from rollups.run.driver import Driver
from rollups.run.local import LocalExecutor
from spm.clock import FakeClock
from spm.errors import SpmError, StoreUnavailable
from spm.limits import DAY_HOURS, HOUR_MS, LIVE_HOURS, PROCESS_GONE_S
from spm.store import epochs, keys, manifest
from spm.store.backends.memory import MemoryBackend
from spm.store.ledger import dead_letters, watermarks
from spm.store.ledger.outcomes import read_outcomes
from spm.store.ledger.watermarks import ProcessWatermarks, WatermarkVector
from spm.store.manifest import Manifest
from spm.store.versions.knowledge import Knowledge
from spm.store.versions.merge import Piece
from spm.store.versions.visibility import Visibility
from spm.wire import Envelope, Parsed, Stamp
from tests.model.accept.cast import (
    MIXES,
    Message,
    Process,
    SkewedClock,
    Version,
    Ways,
    counts_of,
    forged,
    versions,
    versions_seen,
    wholly_written,
)
from tests.model.accept.stage import Actor, Killed, Shaky, Stage
from tests.model.world import APP, DAY, SPREAD, START, parsed

HOURS = (DAY * DAY_HOURS, DAY * DAY_HOURS + 1, DAY * DAY_HOURS + 2)
SEALED_HOUR = HOURS[2]  # what comes for it is late
TRIES_MAX = 2  # deliveries of a message before it is a dead letter
SILENCE_MS = (PROCESS_GONE_S + 70) * 1000


class Violation(AssertionError):
    """A history in which a rule was broken."""


class World:
    """One history."""

    def __init__(self, seed: int, mix: str, *, loss: float = 0.06, ways: Ways | None = None) -> None:
        self.mix, self.ways = MIXES[mix], ways or Ways()
        self.stage = Stage(seed, loss)
        self.inner = MemoryBackend()
        self.store = Shaky(self.inner, self.stage)
        self.clock = FakeClock(START + (LIVE_HOURS * HOUR_MS + HOUR_MS // 2 if self.mix.past else 2 * HOUR_MS))
        self.processes: list[Process] = []
        self.queue: list[Message] = []
        self.hands: dict[str, list[Message]] = {}
        self.accepted: dict[Stamp, Envelope] = {}
        self.acked: set[Stamp] = set()
        self.verdicts: list[tuple[str, bytes, frozenset[Version]]] = []
        self.tail: tuple[bytes, list[Piece]] | None = None
        self.checked = 0
        self.inner.check_and_put("config", epochs.row_key(APP), b"v", None, epochs.encode(SPREAD))
        sealed = manifest.encode(Manifest(nonce=1, seals={SEALED_HOUR: manifest.SEALED}))
        self.inner.check_and_put("manifest", keys.manifest(APP, DAY), b"v", None, sealed)
        for _ in range(2):
            self.begin()

    # --- accepting ----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A process starts."""
        clock = SkewedClock(self.clock, self.stage.choice([0, 0, -3_000, 3_000]) if self.mix.skew else 0)
        accepting = StampAnnouncer(self.store, clock, every_s=None)
        accepting._begin()  # else the first message would take its number while it holds a lock
        accepting._begin_past()
        self.processes.append(Process(accepting, clock))
        self.stage.say(f"   a process starts, skew {clock.skew_ms}")

    def live(self) -> list[Process]:
        """Processes that accept."""
        return [process for process in self.processes if process.alive]

    def accept(self) -> None:
        """One push: stamped, published until it is confirmed, answered."""
        if not self.live():
            return
        if self.accepted and self.stage.chance(0.2):
            again = self.accepted[self.stage.choice(sorted(self.accepted))]
            self.push(Parsed(again.series, again.series_index, again.ts, again.values), again.message_id)
        else:
            self.push(self.body(), self.stage.random.bytes(16))

    def push(self, body: Parsed, message_id: bytes) -> None:
        """Accept a message in some process, for which this actor works from now on."""
        process = self.stage.choice(self.live())
        if self.stage.on is not None:
            process.actors.append(self.stage.on)
        self.clock.advance(int(self.stage.random.integers(0, 3)))
        if self.mix.skew and self.stage.chance(0.1):
            process.clock.skew_ms -= self.stage.choice([5, 2_000])
        envelope = process.accepting.stamp_message(app=APP, source="host", parsed=body, message_id=message_id)
        if envelope.stamp in self.accepted:
            raise Violation(f"{envelope.stamp} was given twice")
        self.accepted[envelope.stamp] = envelope
        self.stage.say(f"   {envelope.stamp} is given to {len(envelope)} samples")
        if self.mix.direct:
            self.patiently(Writer(self.store, SPREAD), [envelope])
        else:
            self.publish(Message(envelope.to_bytes(), envelope.stamp))
        process.accepting.confirm(envelope)
        self.stage.pause(f"answer {envelope.stamp}")
        self.acked.add(envelope.stamp)

    def publish(self, message: Message) -> None:
        """Until it is confirmed."""
        while True:
            try:
                return self.stage.act(f"publish {message.stamp}", lambda: self.queue.append(replace(message)))
            except StoreUnavailable:
                if not self.ways.never_give_up:
                    return self.give_up(message)

    def give_up(self, message: Message) -> None:
        """What must not be: it is not counted any more, although the queue may have it."""
        for process in self.processes:
            for acceptor in process.accepting._stampers.values():
                if acceptor.process == message.stamp.process:
                    acceptor._counts[APP].messages -= 1
        raise Killed

    def body(self) -> Parsed:
        """Some samples; with some luck of kinds that cannot be stored."""
        stage, samples = self.stage, {}
        for _ in range(int(stage.random.integers(1, 4))):
            hour = stage.choice(HOURS if self.mix.late else HOURS[:2])
            ts = hour * HOUR_MS + int(stage.random.integers(1, 4)) - START
            if self.mix.deaths and stage.chance(0.15):
                ts = -START - 5  # no row can hold this time
            series = int(stage.random.integers(0, 5 if self.mix.deaths else 3))
            samples[series, ts] = series, ts, float(stage.random.integers(0, 9))
        body = parsed(list(samples.values()))
        return replace(forged(body), rejected=int(self.mix.deaths and stage.chance(0.2)))

    def announce(self) -> None:
        """A process says what it has accepted."""
        free = [process for process in self.live() if not process.announcing]
        if not free:
            return
        process = self.stage.choice(free)
        process.announcing = True
        if self.stage.on is not None:
            process.actors.append(self.stage.on)
        try:
            process.accepting.announce()
        finally:
            process.announcing = False

    def announce_all(self) -> None:
        """Everybody does."""
        for process in self.live():
            process.accepting.announce()

    def end(self) -> None:
        """A process is killed, or ends in order; another may start."""
        if not self.live():
            return
        process = self.stage.choice(self.live())
        process.alive = False
        for actor in [a for a in process.actors if not a.done]:
            self.stage.kill(actor)
        if self.stage.chance(0.3):
            self.stage.say("   a process ends in order")
            process.accepting.close()
        if self.stage.chance(0.7) or not self.live():
            self.begin()

    # --- storing ------------------------------------------------------------------------------------------------------

    def worker(self) -> None:
        """Takes some messages, writes them as a batch, acknowledges; what it drops comes again."""
        assert self.stage.on is not None
        mine = self.hands.setdefault(self.stage.on.name, [])
        for _ in range(self.stage.choice([1, 1, 2, 3])):
            if self.queue:
                mine.append(self.queue.pop(self.stage.choice([0, 0, 0, len(self.queue) // 2])))
        taken, back = list(mine), True
        try:
            writer = Writer(self.store, SPREAD)
            dead_ones = [m for m in taken if m.tries >= TRIES_MAX]
            for message in dead_ones:
                envelope = Envelope.from_bytes(message.body)
                self.again(partial(writer.write_dead_letter, envelope, "cannot be written"))
            alive = [Envelope.from_bytes(m.body) for m in taken if m not in dead_ones]
            if alive:
                self.patiently(writer, alive)
            self.stage.pause("acknowledge")
            back = self.stage.chance(0.15)
        finally:
            mine.clear()
            if back:
                self.queue[:0] = [replace(m, tries=m.tries + 1) for m in taken]

    def patiently(self, writer: Writer, envelopes: list[Envelope]) -> None:
        """As the consumer does: prepared once, put until it is sure."""
        batch: list[WriteBatch] = []
        self.again(lambda: batch.append(writer.prepare(envelopes)))
        self.again(lambda: writer.commit(batch[0]))

    def again(self, act: Callable[[], object]) -> None:
        """Until the store answers."""
        while True:
            try:
                act()
                return
            except StoreUnavailable:
                continue

    def undead(self) -> None:
        """Somebody replays a dead letter."""
        newest = dead_letters.newest(self.store, APP, count=10)
        if newest and self.live():
            dead_letter_review.replay(self.store, APP, [self.stage.choice(newest).key.hex()], self.accept_anew)

    def accept_anew(self, envelope: Envelope) -> None:
        """Accept a message again that was accepted before."""
        if self.ways.dead_restamp:
            self.push(Parsed(envelope.series, envelope.series_index, envelope.ts, envelope.values), envelope.message_id)
        else:
            self.patiently(Writer(self.store, SPREAD), [envelope])

    def compact(self) -> None:
        """A minor run."""
        driver = Driver(self.store, self.clock)
        self.tolerant(lambda: driver.roll(LocalExecutor(self.store), [APP], minor=True))

    def keeper(self) -> None:
        """Advance the watermarks, perhaps by a clock that takes every process for gone."""
        now = self.clock.now_ms() + self.stage.choice([0, 0, SILENCE_MS])
        self.tolerant(lambda: advance_watermarks(self.store, APP, now))

    def tolerant(self, act: Callable[[], object]) -> None:
        """Act although the store may not answer; the next actor repeats what was left undone."""
        try:
            act()
        except SpmError as error:
            self.stage.say(f"   given up: {error}")

    # --- verdicts -----------------------------------------------------------------------------------------------------

    def judge(self) -> None:
        """Record a verdict: the visible versions at a watermark vector E."""
        if self.tail is not None and self.mix.tail and self.stage.chance(0.5):
            vector, pieces = self.tail
            if not self.ways.tail_e:
                vector = self.vector()
        elif self.ways.e_first:
            vector = self.vector()
            pieces = versions(self.store)
        else:
            pieces = versions(self.store)
            vector = self.vector()
        self.tail = vector, pieces
        seen = self.visible(vector, pieces)
        self.verdicts.append((f"verdict {len(self.verdicts)}", vector, seen))
        self.stage.say(f"   verdict {len(self.verdicts) - 1} sees {len(seen)} samples")

    def vector(self) -> bytes:
        """Return E as it is stored."""
        return WatermarkVector.of(watermarks.read(self.store, APP)).to_bytes()

    def visible(self, vector: bytes, pieces: list[Piece]) -> frozenset[Version]:
        """Return the versions of some data that are visible at a stored E."""
        visibility = Visibility(
            knowledge=Knowledge(WatermarkVector.from_bytes(vector, watermarks.read(self.store, APP)), frozenset())
        )
        return frozenset(version for piece in pieces for version in versions_seen(piece, visibility))

    def replay(self) -> None:
        """A verdict is judged again."""
        if self.verdicts:
            self.compare(*self.stage.choice(self.verdicts), versions(self.store))

    def compare(self, name: str, vector: bytes, seen: frozenset[Version], pieces: list[Piece]) -> None:
        """It must see what it saw."""
        self.checked += 1
        now = self.visible(vector, pieces)
        if now != seen:
            gone, come = sorted(v[4] for v in seen - now), sorted(v[4] for v in now - seen)
            raise Violation(f"{name} saw other samples when it was made: gone {gone}, come {come}")

    # --- balances -----------------------------------------------------------------------------------------------------

    def audit(self, *, final: bool = False) -> None:
        """Each sample has one outcome; acknowledged messages are somewhere; no watermark is above an open stamp."""
        self.checked += 1
        outcome = read_outcomes(self.inner, APP, 0)
        counts = dict(counts_of(outcome))
        strange = counts.keys() - self.accepted.keys()
        if strange:
            raise Violation(f"nobody gave {strange}")
        for stamp, (stored, late, rejected, died, whole) in counts.items():
            envelope = self.accepted[stamp]
            together = stored + late + died
            if (
                together > len(envelope)
                or rejected not in (0, envelope.rejected)
                or whole != (together == len(envelope))
            ):
                raise Violation(f"{stamp} of {len(envelope)}: {counts[stamp]}")
        done = {stamp for stamp, count in counts.items() if count[4]}
        waiting = {m.stamp for m in self.queue} | {m.stamp for messages in self.hands.values() for m in messages}
        lost = self.acked - done - (set() if final else waiting)
        if lost:
            raise Violation(f"acknowledged, and nowhere: {sorted(lost)}")
        for m in watermarks.read(self.inner, APP).values():
            self.audit_mark(m, done)

    def audit_mark(self, m: ProcessWatermarks, done: set[Stamp]) -> None:
        """Everything up to a watermark is settled and counted once, by the watermark or by a record."""
        mine = {stamp for stamp in self.accepted if stamp.process == m.process}
        below = {stamp for stamp in mine if (stamp.ms, stamp.sequence) <= m.watermark.place}
        if below - done:
            raise Violation(f"the mark of process {m.process} stands above {sorted(below - done)}")
        if m.messages != len(below):
            raise Violation(f"the mark of process {m.process} counts {m.messages} messages of {len(below)}")
        totals = m.watermark.totals
        for record in m.adoptions:
            totals = totals.plus(record.totals)
        named = below | {
            stamp for stamp in mine if watermarks.pack_place((stamp.ms, stamp.sequence)) in m.adopted_stamps
        }
        if (totals.messages, totals.samples) != (len(named), sum(len(self.accepted[stamp]) for stamp in named)):
            raise Violation(f"the totals of process {m.process} are {totals}, of {len(named)} messages")

    # --- the end ------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Bring everything to rest; then check verdicts, balances and watermarks once more."""
        stage = self.stage
        for actor in list(stage.actors):
            stage.kill(actor)
        while stage.limbo:
            if stage.chance(0.5):
                stage.land()
            else:
                stage.limbo.pop()
        while self.queue:
            message = self.queue.pop(0)
            Writer(self.inner, SPREAD).write([Envelope.from_bytes(message.body)])
        Driver(self.inner, self.clock).roll(LocalExecutor(self.inner), [APP], minor=True)  # says what is late
        pieces = versions(self.inner)
        for verdict in self.verdicts:
            self.compare(*verdict, pieces)
        self.audit(final=True)
        self.check_series(pieces)
        self.check_sight()

    def check_series(self, pieces: list[Piece]) -> None:
        """Every sample is of the series that its id stands for, and the balance has their number."""
        table = {keys.parse_series(k): c[b"c"] for k, c in self.inner.scan("series", b"", b"\xff" * 30)}
        sizes: dict[Stamp, int] = {}
        for version in {v for piece in pieces for v in versions_seen(piece, Visibility())}:
            series, metric, ts, bits, stamp = version
            envelope = self.accepted[stamp]
            forms = {
                envelope.series.canonical(int(i))
                for i, t, v in zip(envelope.series_index, envelope.ts, envelope.values, strict=True)
                if (int(envelope.series.ids[i]), int(t), int(v.view(np.int64))) == (series, ts, bits)
            }
            if table.get((metric, series)) not in forms:
                raise Violation(f"a sample of {forms} stands under the id of {table.get((metric, series))!r}")
            sizes[stamp] = sizes.get(stamp, 0) + 1
        counts = {stamp: count[0] for stamp, count in counts_of(read_outcomes(self.inner, APP, 0)) if count[0]}
        whole = wholly_written(self.inner)  # half a batch is not counted, also when its message died elsewhere
        if {stamp: n for stamp, n in sizes.items() if stamp in whole} != counts:
            raise Violation(f"stored are {sizes}, the account says {counts}")

    def check_sight(self) -> None:
        """Acknowledged and stored messages are known in the end, whichever process died unannounced."""
        for process in self.live():
            if self.stage.chance(0.5):
                process.accepting.announce()
        now = self.clock.now_ms() + SILENCE_MS
        for _ in range(200):  # what is looked for further back comes with one of many looks
            blind = self.blind()
            if not blind:
                return
            advance_watermarks(self.inner, APP, now)
            now += 10_000
        raise Violation(f"stored, acknowledged, and never known: {sorted(blind)}")

    def blind(self) -> set[Stamp]:
        """Return acknowledged, stored messages that are no dead letters and not known yet."""
        pieces = versions(self.inner)
        seen = {v[4] for v in self.visible(WatermarkVector.of(watermarks.read(self.inner, APP)).to_bytes(), pieces)}
        dead = {
            Envelope.from_bytes(dead_letters.decode(f.raw).body).stamp
            for f in dead_letters.newest(self.inner, APP, count=99)
        }
        return (self.acked & {v[4] for piece in pieces for v in versions_seen(piece, Visibility())}) - seen - dead

    def play(self, steps: int = 4_000) -> None:
        """Let everybody act, in an order and with random numbers that the seed decides."""
        with patch("os.urandom", self.stage.numbers.bytes):
            self._play(steps)

    def _play(self, steps: int) -> None:
        budget = {name: count for name, count in self.mix.actors.items() if count}
        stage, number = self.stage, 0
        for step in range(steps):
            if not budget and not stage.actors:
                break
            if stage.limbo and stage.chance(0.08):
                stage.land()
            elif budget and (not stage.actors or (len(stage.actors) < 6 and stage.chance(0.3))):
                name = stage.choice([n for n, count in budget.items() for _ in range(count)])
                budget[name] -= 1
                if not budget[name]:
                    del budget[name]
                number += 1
                if name == "end":
                    self.end()
                else:
                    stage.enter(f"{name}{number}", getattr(self, name))
            else:
                self.turn(stage.choice(stage.actors), budget)
            if step % 23 == 0:
                self.audit()
        self.finish()

    def turn(self, actor: Actor, budget: dict[str, int]) -> None:
        """Some steps of one actor, or its end."""
        kind = actor.name.rstrip("0123456789")
        if kind in ("worker", "compact", "keeper") and self.stage.chance(0.01):
            self.stage.kill(actor)
            if kind == "worker":
                budget[kind] = budget.get(kind, 0) + 1
            return
        for _ in range(self.stage.choice([1, 1, 2, 6, 20])):
            if not actor.done:
                self.stage.step(actor)
