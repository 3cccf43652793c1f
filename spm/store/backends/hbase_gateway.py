"""Calls to HBase's Thrift gateway. The only module that imports ``happybase``.

A connection belongs to one thread of one process; it is replaced after idle time and after any failure, so that no
answer is taken for that of another call. ``Gateway.repeat`` makes a call again that may be repeated without harm;
``Gateway.once`` does not, and says how the call failed. Any sender may read its errors, so they name neither host nor
port: the log does, and has HBase's own words.
"""

import logging
import os
import re
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import happybase
import Hbase_thrift as thrift  # type: ignore[import-not-found]  # made by the import above
from thriftpy2.thrift import TClient, TException
from thriftpy2.transport import TSocket

from spm import limits
from spm.clock import Clock
from spm.errors import StoreUnavailable

__all__ = ["AlreadyThere", "Broken", "Gateway", "NoAnswer", "Refused", "thrift"]

Result = TypeVar("Result")
log = logging.getLogger(__name__)
_KIND = re.compile(r"[\w.$]*?(\w+(?:Exception|Error))\b")  # a Java class at the beginning of HBase's words
_LOG_EVERY_S = 10.0  # a failure, of all that are alike: each query meets a store that is away


class AlreadyThere(StoreUnavailable):
    """Another process created the table first."""


class NoAnswer(StoreUnavailable):
    """A call ran into its time-out."""


class Broken(StoreUnavailable):
    """The connection could not be opened, or it ended during a call."""


class Refused(StoreUnavailable):
    """The gateway answered with an error. The connection is sound."""


class Connection(happybase.Connection):  # type: ignore[misc]
    """A connection that a forked child drops without closing it for its parent."""

    def __init__(self, host: str, port: int) -> None:
        self.pid = os.getpid()
        super().__init__(host, port, timeout=limits.STORE_TIMEOUT_S * 1000)

    def _refresh_thrift_client(self) -> None:
        """Create the client as happybase does, but store the socket in it."""
        wire = TSocket(host=self.host, port=self.port, socket_timeout=self.timeout)  # type: ignore[no-untyped-call]
        self.transport = self._transport_class(wire)
        client: Any = TClient(thrift.Hbase, self._protocol_class(self.transport, decode_response=False))
        client.wire = wire
        self.client = client

    def close(self) -> None:
        if self.pid == os.getpid():
            super().close()


class Gateway:
    """Calls to the Thrift gateway: connections per thread, foreign errors translated, repeats bounded."""

    def __init__(self, host: str, port: int, clock: Clock) -> None:
        self._host, self._port, self._clock = host, port, clock
        self._local = threading.local()
        self._all: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._logged_s = float("-inf")

    def repeat(self, call: Callable[[Any], Result]) -> Result:
        """Make a call, several times over new connections if necessary, and return its answer."""
        for wait_s in limits.HBASE_BACK_OFF_S:
            try:
                return self.once(call)
            except Broken:
                self._clock.sleep(wait_s)
        return self.once(call)

    def once(self, call: Callable[[Any], Result]) -> Result:
        """Make a call once and return its answer; raise a ``StoreUnavailable`` that says how it failed."""
        client = self._client()
        try:
            result = call(client)
        except thrift.AlreadyExists as error:  # an older table; one created at this moment is an IOError
            raise AlreadyThere("HBase: the table is there already") from error
        except (thrift.IOError, thrift.IllegalArgument) as error:
            self._drop()  # sound, but a pipelined call may have left answers in it
            kind = AlreadyThere if "TableExistsException" in str(error) else Refused
            raise self._failed(kind, f"HBase: {_kind_of(error.message)}", error) from error
        except TimeoutError as error:
            self._drop()
            raise self._failed(NoAnswer, "HBase did not answer in time", error) from error
        except (TException, OSError) as error:
            self._drop()
            raise self._failed(Broken, "HBase ended the connection", error) from error
        except BaseException:
            self._drop()
            raise
        self._local.used = self._clock.monotonic()
        return result

    def sleep(self, wait_s: float) -> None:
        """Wait before a call is made again."""
        self._clock.sleep(wait_s)

    def wait(self, condition: Callable[[Any], bool]) -> None:
        """Wait until ``condition`` holds; raise ``StoreUnavailable`` when it does not within a call's time-out."""
        end = self._clock.monotonic() + limits.STORE_TIMEOUT_S
        while not self.repeat(condition):
            if self._clock.monotonic() > end:
                raise NoAnswer("HBase: a table that is being created does not become ready")
            self._clock.sleep(0.1)

    def close(self) -> None:
        with self._lock:
            connections = list(self._all)
        for connection in connections:
            connection.close()

    def _client(self) -> Any:
        connection = getattr(self._local, "connection", None)
        now = self._clock.monotonic()
        if connection is not None and connection.pid == os.getpid() and connection.transport.is_open():
            if now - self._local.used < limits.HBASE_IDLE_S:
                return connection.client
            self._drop()
        try:
            self._local.connection = Connection(self._host, self._port)
        except (TException, OSError) as error:
            raise self._failed(Broken, "HBase cannot be reached", error) from error
        self._local.used = now
        with self._lock:
            self._all.add(self._local.connection)
        return self._local.connection.client

    def _failed(self, kind: type[StoreUnavailable], text: str, error: Exception) -> StoreUnavailable:
        """Log why a call failed, and return what its caller may read of it."""
        now_s = self._clock.monotonic()
        if now_s - self._logged_s >= _LOG_EVERY_S:
            self._logged_s = now_s
            words = _first_line(getattr(error, "message", None) or error)
            log.warning("HBase's gateway at %s:%d: %s (%s)", self._host, self._port, text, words)
        return kind(text)

    def _drop(self) -> None:
        connection = self._local.connection
        self._local.connection = None
        connection.close()


def _kind_of(message: Any) -> str:
    """The name of HBase's exception: the rest of its words has names of hosts, tables and rows."""
    name = _KIND.match(_first_line(message))
    return name[1] if name else "it refused the call"


def _first_line(message: Any) -> str:
    text = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
    return text.splitlines()[0] if text else "no reason given"
