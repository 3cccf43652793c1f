"""A small application for tests of the web worker: gunicorn loads it by ``open_site``, as it loads the product's.

/pid answers with the number of its process, /switch with the switch interval of its threads, /slow after the seconds of
its query, /stream bit by bit until the process is to end. ``SITE_FAULT`` in the environment makes it fail at its start.
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from typing import Any

from spm.web.http_protocol import Connections


class Site:
    """What ``LoopWorker`` asks of an application."""

    def __init__(self) -> None:
        self.connections = Connections()
        self._ending = asyncio.Event()

    async def __call__(self, scope: Mapping[str, Any], _receive: Any, send: Any) -> None:
        if scope["path"] == "/slow":
            await asyncio.sleep(float(scope["query_string"]))
        body = str(sys.getswitchinterval() if scope["path"] == "/switch" else os.getpid()).encode()
        streams = scope["path"] == "/stream"
        headers = [] if streams else [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        while streams and not self._ending.is_set():
            await send({"type": "http.response.body", "body": b".", "more_body": True})
            await asyncio.sleep(0.05)
        await send({"type": "http.response.body", "body": body})

    async def start(self) -> None:
        """Listen at no other port."""

    async def stopped(self) -> None:
        """Wait for nothing."""

    def stop(self) -> None:
        """End streams."""
        self._ending.set()

    def close(self) -> None:
        """Say that the end was orderly."""
        print(f"closed {os.getpid()}", flush=True)


def open_site() -> Site:
    """Open the application, within its loop."""
    asyncio.get_running_loop()
    if "SITE_FAULT" in os.environ:
        raise ValueError("the site has no foundation")
    return Site()
