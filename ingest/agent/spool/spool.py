"""The spool: messages wait here, in order, until the server has them or no longer wants them.

Every message is appended before it is sent, so a killed agent loses none that it collected. ``append`` hands the bytes
to the operating system (they survive the process); ``sync`` makes them survive a power cut, and is called after each
failed push, so that only messages of the last back-off are at risk while the server is away, and none is fsynced for
nothing while it is there. Above ``bytes_max`` the oldest segment goes: its waiting messages and their samples are
counted as dropped, across restarts too, and the numbers in the ids that follow leave a gap by which the server names
them. If the disk itself refuses (it may be the full disk somebody wants to hear about), the newest wait in memory.
"""

import os
import threading
from collections import deque
from contextlib import suppress
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from ingest.agent.spool import identity, segments
from ingest.agent.spool.records import Message, encode, read_one, record_bytes
from ingest.agent.spool.segments import Segment
from spm import limits
from spm.errors import LimitExceeded
from spm.message_ids import make

SEGMENTS = 16  # of a full spool: dropping the oldest costs a sixteenth of it


class Spool:
    """A bounded first-in first-out queue on disk. Safe for one thread that appends and one that takes."""

    def __init__(self, folder: Path, *, bytes_max: int) -> None:
        self._folder, self._bytes_max = folder, bytes_max
        self._held = segments.lock(folder)
        self._segments, self.damaged = segments.load(folder)
        mark = segments.read_mark(folder)
        certain = mark is not None and not self.damaged
        self._acknowledged = mark or 0
        self._mark = segments.open_mark(folder)
        newest = self._segments[-1].last if self._segments else 0
        self._next = max(newest, self._acknowledged) + 1
        found, boot = identity.read(folder), identity.this_boot()
        self._identity = identity.take_up(found, boot=boot, number=self._next, certain=certain)
        identity.write(folder, self._identity)
        self._memory: deque[Message] = deque()
        self._writer: FileIO | None = None
        self._reader: BinaryIO | None = None
        self._reading: Path | None = None
        self._head: Message | None = None
        self._mutex = threading.Lock()
        self._forget_settled()

    def append(self, body: bytes, samples: int = 0) -> int:
        """Put a message at the end; returns its sequence number, which is in its id."""
        if len(body) > limits.AGENT_MESSAGE_BYTES_MAX:
            raise LimitExceeded("message too large for the spool", got=len(body), wanted=limits.AGENT_MESSAGE_BYTES_MAX)
        with self._mutex:
            message = Message(self._next, make(self._identity.name, self._next), body, samples)
            self._next += 1
            try:
                self._write(message)
            except OSError:
                self._abandon_writer()
                self._remember(message)
            return message.sequence

    def head(self) -> Message | None:
        """The oldest waiting message, without taking it."""
        with self._mutex:
            if self._head is None:
                self._head = self._read_next()
            if self._memory and (self._head is None or self._memory[0].sequence < self._head.sequence):
                return self._memory[0]
            return self._head

    def settle(self, sequence: int) -> None:
        """The head is done with: the server has it, or refused it for good."""
        with self._mutex:
            if self._memory and self._memory[0].sequence == sequence:
                self._memory.popleft()
            if self._head is not None and self._head.sequence <= sequence:
                self._head = None
            self._acknowledged = max(self._acknowledged, sequence)
            with suppress(OSError):  # an old mark means a message sent twice under one id
                segments.write_mark(self._mark, self._acknowledged)
            self._forget_settled()

    def drop(self, message: Message) -> None:
        """The head is done with, and lost: the server refused it for good."""
        with self._mutex:
            self._count_drops(1, message.samples)
        self.settle(message.sequence)

    @property
    def name(self) -> str:
        """Whose numbers the messages bear."""
        return self._identity.name.hex()

    @property
    def dropped(self) -> tuple[int, int]:
        """How many messages, and how many samples, never got to the server since there is this spool."""
        return self._identity.messages, self._identity.samples

    def depth(self) -> int:
        """How many messages wait."""
        with self._mutex:
            return len(self._memory) + sum(segment.waiting(self._acknowledged) for segment in self._segments)

    def sync(self) -> None:
        """Make everything appended so far survive a power cut."""
        with self._mutex:
            if self._writer is not None:
                os.fsync(self._writer.fileno())
                segments.sync_folder(self._folder)

    def close(self) -> None:
        """Sync, and let the folder go."""
        self.sync()
        with self._mutex:
            for file in (self._writer, self._reader, self._held):
                if file is not None:
                    file.close()
            os.close(self._mark)
            self._count_drops(len(self._memory), sum(message.samples for message in self._memory))
            with suppress(OSError):  # then the next start takes a new name
                identity.write(self._folder, replace(self._identity, next=0 if self._memory else self._next))

    def _write(self, message: Message) -> None:
        size = record_bytes(message)
        self._make_room(size)
        if self._writer is None or self._segments[-1].size + size > self._bytes_max // SEGMENTS:
            self._begin_segment(message.sequence)
        assert self._writer is not None, "BUG: a begun segment has a writer"
        # Unbuffered: a nearly full disk writes less, and says so only in this number.
        if self._writer.write(encode(message)) != size:
            raise OSError("short write")
        newest = self._segments[-1]
        self._segments[-1] = replace(newest, last=message.sequence, size=newest.size + size)

    def _begin_segment(self, first: int) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        path = segments.path_of(self._folder, first)
        self._writer = FileIO(path, "wb")
        self._segments.append(Segment(path, first=first, last=first - 1, size=0))

    def _make_room(self, size: int) -> None:
        while self._segments and sum(segment.size for segment in self._segments) + size > self._bytes_max:
            self._discard(self._segments[0])

    def _discard(self, segment: Segment) -> None:
        self._count_drops(segment.waiting(self._acknowledged), segments.samples_after(segment, self._acknowledged))
        self._acknowledged = max(self._acknowledged, segment.last)
        with suppress(OSError):
            segments.write_mark(self._mark, self._acknowledged)  # its numbers are used, though no file holds them
        if self._head is not None and self._head.sequence <= segment.last:
            self._head = None
        if segment.path == self._segments[-1].path:
            self._abandon_writer()
        self._forget_settled()

    def _forget_settled(self) -> None:
        """Remove the files of which nothing waits, but not the one being written."""
        while self._segments and self._segments[0].waiting(self._acknowledged) == 0:
            if len(self._segments) == 1 and self._writer is not None:
                if self._segments[0].size <= self._bytes_max // SEGMENTS // 2:
                    return
                self._writer.close()
                self._writer = None
            gone = self._segments.pop(0)
            gone.path.unlink(missing_ok=True)
            if gone.path == self._reading:
                self._stop_reading()

    def _abandon_writer(self) -> None:
        """After a failed write: what it left is cut off, and the next message begins a new segment."""
        if self._writer is None:
            return
        self._writer.close()
        self._writer = None
        broken = self._segments[-1]
        if not broken.size:
            self._segments.pop().path.unlink(missing_ok=True)
            return
        os.truncate(broken.path, broken.size)

    def _remember(self, message: Message) -> None:
        """Keep a message the disk does not take. Its number goes with this process, so the name must not outlive it."""
        if any(self._identity.boot):
            self._identity = replace(self._identity, boot=bytes(16))
            try:
                identity.write(self._folder, self._identity)
            except OSError:
                with suppress(OSError):
                    identity.remove(self._folder)
        if len(self._memory) >= limits.AGENT_MEMORY_MESSAGES_MAX:
            self._count_drops(1, self._memory.popleft().samples)
        self._memory.append(message)

    def _count_drops(self, messages: int, samples: int) -> None:
        if messages:
            self._identity = self._identity.with_drops(messages, samples)
            with suppress(OSError):  # a full disk: the next drop, or the end, writes it
                identity.write(self._folder, self._identity)

    def _read_next(self) -> Message | None:
        while (segment := self._unread_segment()) is not None:
            if self._reading != segment.path:
                self._stop_reading()
                self._reading, self._reader = segment.path, segment.path.open("rb")
            assert self._reader is not None, "BUG: a segment being read has a reader"
            message = read_one(self._reader)
            if message is None:  # its bytes were whole when written: the disk lost them since
                self._discard(segment)
            elif message.sequence > self._acknowledged:
                return message
        return None

    def _unread_segment(self) -> Segment | None:
        return next((segment for segment in self._segments if segment.waiting(self._acknowledged)), None)

    def _stop_reading(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = self._reading = None
