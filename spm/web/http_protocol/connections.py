"""All connections of a process: how many there may be, whose time is over, and which go when there is no room.

No connection has a timer. A connection that waits for its client is entered in a wheel under the second in which its
time may be over; once a second those of past seconds are looked at, some at a time, and are closed or entered again.
The clock of all bounds leaves out the time in which the event loop stood still, since no client caused it.

A new connection always has room while others can make it at little cost to their clients: first the ones that never
sent a byte, then idle ones, then unfinished heads, of each kind the oldest. Where its address has too many, those of
the address make room, so that many senders behind one address get their turns, and none of them keeps others out.
Connections that are being closed do not count; they have a bound of their own. Enter by ``Connections``.
"""

import asyncio
import ipaddress
import resource
import socket
from collections import OrderedDict
from collections.abc import Callable
from enum import IntEnum
from typing import Protocol

from spm.limits import WEB_FILES_RESERVE, WEB_SYSTEM_UNSENT_BYTES
from spm.web.client_address import TrustedProxies
from spm.web.http_protocol.bounds import NEVER, HttpBounds

_SHED_EVERY_S = 0.1  # between two looks at all unsent bytes: under pressure each write would ask for one
_AT_ONCE = 32  # connections that are looked at before a pause: to close one takes 50 µs
_PAUSE_S, _PAUSES = 0.01, 100  # a thousand closed in one turn of the loop would keep all others waiting for it
_TURN = -1  # the slot of a connection whose turn it is
_YOUNG_S = 1.0  # of an answer: how fast its reader is shows later


class Phase(IntEnum):
    """What a connection does."""

    LINGERING = 0  # answered for the last time; waits until the client has read that
    IDLE = 1  # between two requests
    SILENT = 2  # has never sent a byte
    HEAD = 3  # a head has begun
    RUNNING = 4  # the whole request has come; the answer has not gone
    BODY = 5  # a body is coming


LINGERING, IDLE, SILENT, HEAD, RUNNING, BODY = Phase  # reading an attribute of an enumeration takes time
_GIVE_WAY = (SILENT, IDLE, HEAD)  # phases whose connections make room for new ones, in this order
_FULL = (
    "All {:,} connections that this web server may have are at work: SPM_WEB_PROCESSES, or its limit of open files, "
    "allows more. Try again later."
)
_ADDRESS_FULL = (
    "All {:,} connections that your address may have are at work: SPM_ADDRESS_CONNECTIONS_MAX allows more. A proxy is "
    "named in SPM_TRUSTED_PROXIES instead. Try again later."
)


class Connection(Protocol):
    """What ``Connections`` asks of a connection."""

    phase: Phase
    wheel_slot: int  # under which it is entered; 0: not at all
    address_key: str  # under which it is counted; empty: not

    def due(self, now: float) -> float:
        """Returns when its client's time is over, or when to look again."""

    def expire(self) -> None:
        """Closes it because its client's time is over."""

    def drop(self) -> None:
        """Ends it at once."""

    def unsent_bytes(self) -> int:
        """Returns how many bytes of answers wait for the client."""

    def reader_pace(self, now: float) -> tuple[float, float]:
        """Returns the seconds since bytes have waited for its client, and the bytes a second it took since then."""


class Connections:
    """The connections of one event loop, with the bounds and trusted proxies that hold for all of them."""

    def __init__(self, bounds: HttpBounds | None = None, proxies: TrustedProxies | None = None) -> None:
        self.bounds = bounds or HttpBounds()
        self.proxies = proxies or TrustedProxies(())
        self.maximum = self.bounds.connections_max
        self.refused = 0  # for want of room, since the start
        self._count = 0
        self._entered = 0  # phases, since the start
        self._by_address: dict[str, set[Connection]] = {}
        self._by_phase: dict[Phase, OrderedDict[Connection, int]] = {  # when it was entered, as a number that grows
            phase: OrderedDict() for phase in Phase if phase <= HEAD
        }
        self._slot_s = self.bounds.sweep_s
        self._wheel: dict[int, set[Connection]] = {}
        self._wheel_at = 0
        self._turns: OrderedDict[Connection, None] = OrderedDict()
        self._waiting: set[Connection] = set()
        self._unsent_bytes = 0
        self._shed_at = -NEVER
        self._loop_time: Callable[[], float] | None = None
        self._left_out_s = 0.0
        self._swept_at = 0.0

    def __len__(self) -> int:
        """The number of connections, without those that are being closed."""
        return self._count - len(self._by_phase[LINGERING])

    def now(self) -> float:
        """Seconds of a clock that stands while the event loop does."""
        assert self._loop_time is not None, "BUG: no connection was ever added"
        return self._loop_time() - self._left_out_s

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begins the looks at connections, on the loop that serves them; a second call does nothing."""
        if self._loop_time is None:
            self._loop_time = loop.time
            self._swept_at = loop.time()
            self._wheel_at = int(self.now() / self._slot_s)
            loop.call_later(self.bounds.sweep_s, self._tick, loop)

    def add(self, connection: Connection, host: str | None) -> str:
        """Counts a new connection from ``host``; returns why there is no room for it, "" if there is."""
        self._count += 1
        key = "" if host is None or self.proxies.trusts(host) else _address_key(host)
        if key:
            connection.address_key = key
            own = self._by_address.setdefault(key, set())
            own.add(connection)
            if len(own) > self.bounds.address_connections_max and not self._make_room_among(own):
                self.refused += 1
                return _ADDRESS_FULL.format(self.bounds.address_connections_max)
        if len(self) > self.maximum and not self._make_room():
            self.refused += 1
            return _FULL.format(self.maximum)
        return ""

    def remove(self, connection: Connection) -> None:
        """Forgets a connection that was lost."""
        self._count -= 1
        if connection.address_key:
            own = self._by_address[connection.address_key]
            own.discard(connection)
            if not own:
                del self._by_address[connection.address_key]
        if connection.phase <= HEAD:
            self._by_phase[connection.phase].pop(connection, None)
        self._waiting.discard(connection)
        if connection.wheel_slot == _TURN:
            del self._turns[connection]
        elif connection.wheel_slot:
            self._wheel[connection.wheel_slot].discard(connection)

    def enter(self, connection: Connection, phase: Phase) -> None:
        """Notes that a connection is in ``phase`` from now on."""
        before, connection.phase = connection.phase, phase
        if before <= HEAD:
            self._by_phase[before].pop(connection, None)
        if phase <= HEAD:
            order = self._by_phase[phase]
            self._entered += 1
            order[connection] = self._entered
            if phase is LINGERING and len(order) > self.bounds.lingering_max:
                order.popitem(last=False)[0].drop()

    def watch(self, connection: Connection, due: float) -> None:
        """Looks at a connection not before ``due``, in seconds of ``now``, unless it is looked at before anyway."""
        if due == NEVER or connection.wheel_slot == _TURN:
            return
        slot = max(int(due / self._slot_s), self._wheel_at) + 1
        if connection.wheel_slot:
            if connection.wheel_slot <= slot:
                return
            self._wheel[connection.wheel_slot].discard(connection)
        connection.wheel_slot = slot
        self._wheel.setdefault(slot, set()).add(connection)

    def wait_for_reader(self, connection: Connection) -> None:
        """Notes that a connection has more unsent bytes than its transport buffers."""
        self._waiting.add(connection)
        self._unsent_bytes += connection.unsent_bytes()
        if self._unsent_bytes > self.bounds.unsent_bytes_max:
            self._shed()

    def reader_followed(self, connection: Connection) -> None:
        """Notes that the client of a connection has taken most of its bytes."""
        self._waiting.discard(connection)

    def _make_room(self) -> bool:
        for phase in _GIVE_WAY:
            if self._by_phase[phase]:
                self._by_phase[phase].popitem(last=False)[0].drop()
                return True
        return False

    def _make_room_among(self, own: set[Connection]) -> bool:
        """Ends the one of an address's connections that ``_make_room`` would end first."""
        for phase in _GIVE_WAY:
            order = self._by_phase[phase]
            first = min((each for each in own if each in order), key=order.__getitem__, default=None)
            if first is not None:
                del order[first]
                first.drop()
                return True
        return False

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        passed, self._swept_at = now - self._swept_at, now
        if passed > 2 * self.bounds.sweep_s:
            self._left_out_s += passed - self.bounds.sweep_s
        loop.call_later(self.bounds.sweep_s, self._tick, loop)
        self.sweep(self.now())
        self._look(loop)

    def sweep(self, now: float) -> None:
        """Gives a turn to all connections whose time may be over at ``now``."""
        self._wheel_at = max(self._wheel_at, int(now / self._slot_s))
        for slot in [slot for slot in self._wheel if slot <= self._wheel_at]:
            for connection in self._wheel.pop(slot):
                connection.wheel_slot = _TURN
                self._turns[connection] = None
        if self._waiting:
            self._shed()

    def look(self, now: float, number: int) -> bool:
        """Looks at so many connections whose turn it is; returns whether there are more."""
        while self._turns and number:
            connection, number = self._turns.popitem(last=False)[0], number - 1
            connection.wheel_slot = 0
            due = connection.due(now)
            if due <= now:
                connection.expire()
            else:
                self.watch(connection, due)
        return bool(self._turns)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        if self.look(self.now(), _AT_ONCE + len(self._turns) // _PAUSES):
            loop.call_later(_PAUSE_S, self._look, loop)

    def _shed(self) -> None:
        """Ends the slowest readers while more bytes wait for readers than may."""
        now = self.now()
        if now < self._shed_at + _SHED_EVERY_S:
            return
        self._shed_at = now
        unsent = {connection: connection.unsent_bytes() for connection in self._waiting}
        self._unsent_bytes = sum(unsent.values())
        if self._unsent_bytes <= self.bounds.unsent_bytes_max:
            return
        grown = self._unsent_bytes > 2 * self.bounds.unsent_bytes_max
        order = []
        for connection, byte_count in unsent.items():
            seconds, pace = connection.reader_pace(now)
            if grown or seconds >= _YOUNG_S:
                order.append((byte_count / max(pace, 1.0), id(connection), connection))
        for _, _, connection in sorted(order, reverse=True):
            if self._unsent_bytes <= self.bounds.unsent_bytes_max:
                return
            self._unsent_bytes -= unsent[connection]
            self._waiting.discard(connection)
            connection.drop()


def bound_system_buffers(listener: socket.socket) -> None:
    """Bounds what the system buffers of an answer whose client takes none, for all connections of a listening socket.

    Their speed does not depend on it: bytes under way do not count.
    """
    if listener.family in (socket.AF_INET, socket.AF_INET6):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, WEB_SYSTEM_UNSENT_BYTES)


def allowed_connections(wanted: int) -> int:
    """Raises the soft limit of open files to the hard one; returns how many of ``wanted`` connections it allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return wanted if hard == resource.RLIM_INFINITY else max(1, min(wanted, hard - WEB_FILES_RESERVE))


def _address_key(host: str) -> str:
    """Returns what counts as one client: an IPv4 address, or the /64 network of an IPv6 address."""
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return address.exploded[:19]
