"""The spool: messages wait on disk, or in memory if it fails, in order, until the server has taken or rejected them.

Every message is appended before it is sent, so a killed agent loses no message. ``append`` passes the bytes to the
operating system, so that they survive the process. ``sync`` makes them survive a power cut. It runs after each failed
push: while the server is away only messages since the last retry are at risk, and while it answers no fsync is wasted.
Above ``bytes_max`` the oldest segment is removed. Its waiting messages and their samples count as dropped, also across
restarts, and the server sees the gap in the sequence numbers. If the disk fails (perhaps the full disk that the metrics
report), the newest messages wait in memory.
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

SEGMENTS = 16  # of a full spool: removing the oldest drops a sixteenth of it


class Spool:
    """A bounded first-in first-out queue on disk. Safe for one thread that appends and one that sends."""

    def __init__(self, folder: Path, *, bytes_max: int) -> None:
        self._folder, self._bytes_max = folder, bytes_max
        self._lock_file = segments.lock(folder)
        self._segments, self.damaged = segments.load(folder)
        acknowledged = segments.read_acknowledged(folder)
        certain = acknowledged is not None and not self.damaged
        self._acknowledged = acknowledged or 0
        self._acknowledged_file = segments.open_acknowledged(folder)
        newest = self._segments[-1].last if self._segments else 0
        self._next = max(newest, self._acknowledged) + 1
        stored, boot = identity.read(folder), identity.boot_id()
        self._identity = identity.resume(stored, boot=boot, number=self._next, certain=certain)
        identity.write(folder, self._identity)
        self._memory: deque[Message] = deque()
        self._writer: FileIO | None = None
        self._reader: BinaryIO | None = None
        self._reading: Path | None = None
        self._head: Message | None = None
        self._mutex = threading.Lock()
        self._remove_acknowledged()

    def append(self, body: bytes, samples: int = 0) -> int:
        """Append a message; returns its sequence number, which is also in its id."""
        if len(body) > limits.AGENT_MESSAGE_BYTES_MAX:
            most = limits.AGENT_MESSAGE_BYTES_MAX
            raise LimitExceeded("the message is too large for the spool", got=len(body), wanted=f"at most {most} bytes")
        with self._mutex:
            message = Message(self._next, make(self._identity.name, self._next), body, samples)
            self._next += 1
            try:
                self._write(message)
            except OSError:
                self._abandon_writer()
                self._add_to_memory(message)
            return message.sequence

    def head(self) -> Message | None:
        """Returns the oldest waiting message, which stays in the spool."""
        with self._mutex:
            if self._head is None:
                self._head = self._read_next()
            if self._memory and (self._head is None or self._memory[0].sequence < self._head.sequence):
                return self._memory[0]
            return self._head

    def acknowledge(self, sequence: int) -> None:
        """Remove the head: the server has accepted it or rejected it permanently."""
        with self._mutex:
            if self._memory and self._memory[0].sequence == sequence:
                self._memory.popleft()
            if self._head is not None and self._head.sequence <= sequence:
                self._head = None
            self._acknowledged = max(self._acknowledged, sequence)
            with suppress(OSError):  # with an old number the message is sent again with the same id
                segments.write_acknowledged(self._acknowledged_file, self._acknowledged)
            self._remove_acknowledged()

    def discard(self, message: Message) -> None:
        """Remove the head and count it as dropped: the server has rejected it permanently."""
        with self._mutex:
            self._count_drops(1, message.samples)
        self.acknowledge(message.sequence)

    @property
    def name(self) -> str:
        """The name of the spool in the ids of its messages."""
        return self._identity.name.hex()

    @property
    def dropped(self) -> tuple[int, int]:
        """The numbers of messages and of samples that this spool has dropped since it exists."""
        return self._identity.messages, self._identity.samples

    def depth(self) -> int:
        """Returns how many messages wait."""
        with self._mutex:
            return len(self._memory) + sum(segment.waiting(self._acknowledged) for segment in self._segments)

    def sync(self) -> None:
        """Make all appended messages survive a power cut."""
        with self._mutex:
            if self._writer is not None:
                os.fsync(self._writer.fileno())
                segments.sync_folder(self._folder)

    def close(self) -> None:
        """Sync, close all files, and unlock the folder."""
        self.sync()
        with self._mutex:
            for file in (self._writer, self._reader, self._lock_file):
                if file is not None:
                    file.close()
            os.close(self._acknowledged_file)
            self._count_drops(len(self._memory), sum(message.samples for message in self._memory))
            with suppress(OSError):  # without it the next start takes a new name
                identity.write(self._folder, replace(self._identity, next=0 if self._memory else self._next))

    def _write(self, message: Message) -> None:
        size = record_bytes(message)
        self._make_room(size)
        if self._writer is None or self._segments[-1].size + size > self._bytes_max // SEGMENTS:
            self._begin_segment(message.sequence)
        assert self._writer is not None, "BUG: a begun segment has a writer"
        # Unbuffered: a nearly full disk writes less, and only this number shows it.
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
            self._discard_segment(self._segments[0])

    def _discard_segment(self, segment: Segment) -> None:
        self._count_drops(segment.waiting(self._acknowledged), segments.samples_after(segment, self._acknowledged))
        self._acknowledged = max(self._acknowledged, segment.last)
        with suppress(OSError):
            # The numbers of the segment are used, although no file holds them any more.
            segments.write_acknowledged(self._acknowledged_file, self._acknowledged)
        if self._head is not None and self._head.sequence <= segment.last:
            self._head = None
        if segment.path == self._segments[-1].path:
            self._abandon_writer()
        self._remove_acknowledged()

    def _remove_acknowledged(self) -> None:
        """Remove the segments without waiting messages, except the one being written."""
        while self._segments and self._segments[0].waiting(self._acknowledged) == 0:
            if len(self._segments) == 1 and self._writer is not None:
                if self._segments[0].size <= self._bytes_max // SEGMENTS // 2:
                    return
                self._writer.close()
                self._writer = None
            segment = self._segments.pop(0)
            segment.path.unlink(missing_ok=True)
            if segment.path == self._reading:
                self._stop_reading()

    def _abandon_writer(self) -> None:
        """Truncate the segment after a failed write; the next message begins a new segment."""
        if self._writer is None:
            return
        self._writer.close()
        self._writer = None
        broken = self._segments[-1]
        if not broken.size:
            self._segments.pop().path.unlink(missing_ok=True)
            return
        os.truncate(broken.path, broken.size)

    def _add_to_memory(self, message: Message) -> None:
        """Keep a message that the disk does not accept. Process and number end together, so the name must end, too."""
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
            with suppress(OSError):  # the disk is full: the next drop, or ``close``, writes it
                identity.write(self._folder, self._identity)

    def _read_next(self) -> Message | None:
        while (segment := self._unread_segment()) is not None:
            if self._reading != segment.path:
                self._stop_reading()
                self._reading, self._reader = segment.path, segment.path.open("rb")
            assert self._reader is not None, "BUG: a segment being read has a reader"
            message = read_one(self._reader)
            if message is None:  # the record was complete when written: the disk has lost it
                self._discard_segment(segment)
            elif message.sequence > self._acknowledged:
                return message
        return None

    def _unread_segment(self) -> Segment | None:
        return next((segment for segment in self._segments if segment.waiting(self._acknowledged)), None)

    def _stop_reading(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = self._reading = None
