"""The worker of gunicorn's arbiter: one event loop for all connections, by uvicorn on uvloop.

The arbiter binds, starts and replaces the processes (HUP: again with new code; USR2: a new arbiter beside the old one;
systemd's sockets); this worker serves. On TERM it takes no new connection. For ``WEB_LAST_REQUEST_S`` connections may
bring one more request, whose answer says that it is the last one, so that a client that sends at that moment is not cut
off; then idle ones are closed, and requests at work get the rest of ``WEB_GRACE_S``. USR2 needs an arbiter that was
started by the program ``gunicorn``: after ``python -m gunicorn`` the new one takes gunicorn's modules for those of the
standard library. Enter by gunicorn's ``--worker-class``; nothing of the site is loaded with this module.
"""

import asyncio
import os
import signal
import socket
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import uvloop
from gunicorn.workers.base import Worker
from uvicorn.config import Config
from uvicorn.server import Server

from spm.limits import WEB_GRACE_S, WEB_IDLE_S, WEB_LAST_REQUEST_S
from spm.web.http_protocol import BoundedHttpProtocol, bound_system_buffers

SWITCH_S = 0.0005  # the loop waits so long for Python's lock while a thread computes; Python's default is 5 ms
_NOTIFY_S = 5  # seconds; the arbiter waits 90
_BOOT_ERROR = 3  # gunicorn's code for a worker that cannot begin: the arbiter ends then, instead of trying for ever
_TICKS_PER_S = 10  # by which uvicorn counts
_LOOK_S = 0.05  # between two looks whether all connections are closed
Application = Callable[[Mapping[str, Any], Any, Any], Awaitable[None]]


class LoopWorker(Worker):  # type: ignore[misc]  # gunicorn has no types
    """Serves connections by an event loop."""

    def init_signals(self) -> None:
        """Leave signals to the loop; what is set for the arbiter must not stay in its child."""
        for number in self.SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGUSR1, self.handle_usr1)
        signal.siginterrupt(signal.SIGUSR1, False)

    def load_wsgi(self) -> None:
        """Load the site, whose faults end the server with one line that says why."""
        try:
            super().load_wsgi()
        except Exception as error:
            self._complain(error)
            sys.exit(_BOOT_ERROR)

    def run(self) -> None:
        """Serve until the process is to end."""
        sys.setswitchinterval(SWITCH_S)
        status = uvloop.run(self._serve())
        sys.stdout.flush()
        sys.stderr.flush()
        if status:
            sys.exit(status)

    async def _serve(self) -> int:
        try:
            application = self.wsgi()  # the factory that the command line names
            await application.start()
            protocol = partial(BoundedHttpProtocol, connections=application.connections)
            last = _LastAnswers(application)
            config = _config(last, protocol, self._notify, self._certificate())
            config.load()
        except Exception as error:
            self._complain(error)
            return _BOOT_ERROR
        server = _Server(config, last, application.stop)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, server.stop)
        for number in (signal.SIGINT, signal.SIGQUIT):
            loop.add_signal_handler(number, server.stop_now)
        try:
            for each in self.sockets:
                bound_system_buffers(each.sock)
            await server.serve(sockets=[each.sock for each in self.sockets])
            await application.stopped()
        finally:
            application.close()
        return 0 if server.started else _BOOT_ERROR

    def _complain(self, error: Exception) -> None:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{place.filename}, line {place.lineno}"
        self.log.critical("The web process cannot begin: %s: %s (%s)", type(error).__name__, error, where)

    def _certificate(self) -> dict[str, Any]:
        """Return the arbiter's settings of TLS, if it has them, under uvicorn's names."""
        if not self.cfg.is_ssl:
            return {}
        return {"ssl_certfile": self.cfg.certfile, "ssl_keyfile": self.cfg.keyfile, "ssl_ca_certs": self.cfg.ca_certs}

    async def _notify(self) -> None:
        self.notify()
        if self.ppid != os.getppid():  # the arbiter has gone
            os.kill(os.getpid(), signal.SIGTERM)


class _LastAnswers:
    """The application; once ``end`` is set, each of its answers is the last one of its connection."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self.end = False

    def __call__(self, scope: Mapping[str, Any], receive: Any, send: Any) -> Awaitable[None]:
        return self._application(scope, receive, partial(_send_last, send) if self.end else send)


async def _send_last(send: Callable[[Any], Awaitable[None]], message: Any) -> None:
    if message["type"] == "http.response.start":
        message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
    await send(message)


class _Server(Server):
    """A server whose signals are handled by its worker. ``before_end`` is called when it takes no more connections."""

    def __init__(self, config: Config, answers: _LastAnswers, before_end: Callable[[], None]) -> None:
        super().__init__(config)
        self._answers, self._before_end = answers, before_end
        self._end = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Change no handler."""
        yield

    async def main_loop(self) -> None:
        """Do each second what is to be done each second; end at once when a signal says so.

        Uvicorn's own loop wakes ten times a second, to see such a signal.
        """
        count = 0
        while not await self.on_tick(count):
            count += _TICKS_PER_S
            with suppress(TimeoutError):
                await asyncio.wait_for(self._end.wait(), 1)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, end what would otherwise go on for ever, and let connections bring their last
        request; then close the idle ones, and wait for the rest.
        """
        for listener in (*self.servers, *(sockets or ())):
            listener.close()
        self._answers.end = True
        for connection in self.server_state.connections:
            if isinstance(connection, BoundedHttpProtocol):
                connection.repeats.forget()  # the next request is the application's, whose answer is the last one
                if connection.cycle is not None:
                    connection.cycle.keep_alive = False
        self._before_end()
        for _ in range(round(WEB_LAST_REQUEST_S / _LOOK_S)):
            if self.force_exit or not self.server_state.connections:
                break
            await asyncio.sleep(_LOOK_S)
        await super().shutdown(sockets)

    def stop(self) -> None:
        """Take no new connections; end when the requests at work are answered."""
        self.should_exit = True
        self._end.set()

    def stop_now(self) -> None:
        """End without waiting."""
        self.force_exit = True
        self.stop()


def _config(
    application: Application,
    protocol: Callable[..., Any],
    notify: Callable[[], Awaitable[None]],
    certificate: dict[str, Any],
) -> Config:
    return Config(
        application,
        http=protocol,  # type: ignore[arg-type]  # anything that makes a protocol
        ws="none",
        loop="none",
        lifespan="off",
        interface="asgi3",
        access_log=False,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=WEB_IDLE_S,
        timeout_graceful_shutdown=WEB_GRACE_S - WEB_LAST_REQUEST_S,
        callback_notify=notify,
        timeout_notify=_NOTIFY_S,
        **certificate,
    )
