"""Heartbeats: how the agent does, told to the server every ``AGENT_HEARTBEAT_S``; settings come back with the answer.

    POST /api/v1/agents             once at the start       → what the server knows, and settings
    POST /api/v1/agents/heartbeat   from then on            → settings, if others than the agent has (by their etag)

A heartbeat is worth nothing later, so none is kept: the next one says it all. A server that does not know the interface
(404, 405) is asked seldom. Nothing here delays looks or pushes: it has a thread of its own.
"""

import json
import logging
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

from ingest.agent.agent import Agent
from ingest.agent.collect.host.itself import Counters
from ingest.agent.server.web import Web
from ingest.agent.spool.spool import Spool
from ingest.agent.version import USER_AGENT, VERSION
from spm import limits
from spm.clock import Clock

log = logging.getLogger("spm.agent")
REGISTER, HEARTBEAT, ABOUT = "/api/v1/agents", "/api/v1/agents/heartbeat", "/api/v1/agents/version"
_SELDOM = 20  # heartbeats left out at a server without the interface: ten minutes


@dataclass(frozen=True, slots=True)
class Answer:
    """A server's answer; a status of 0: there was none, and ``problem`` says why."""

    status: int
    told: Mapping[str, Any]
    problem: str = ""


def ask(web: Web, token: str, path: str, body: Mapping[str, Any] | None = None) -> Answer:
    """One request of the agents' interface: a GET, or a POST of a JSON body."""
    headers = {**web.headers(), "Authorization": f"Bearer {token}", "User-Agent": USER_AGENT}
    headers |= {"Accept": "application/json", "Content-Type": "application/json"}
    try:
        link = web.connect()
        try:
            data = None if body is None else json.dumps(body).encode()
            link.request("GET" if body is None else "POST", web.path(path), data, headers)
            response = link.getresponse()
            raw = response.read(limits.AGENT_ANSWER_BYTES_MAX)
        finally:
            link.close()
        told = json.loads(raw) if raw.lstrip().startswith(b"{") else {}
        return Answer(response.status, told if isinstance(told, dict) else {}, f"HTTP {response.status}")
    except (OSError, HTTPException, ValueError, RecursionError) as error:
        return Answer(0, {}, f"{type(error).__name__}: {error}")


class Heart:
    """The heartbeats of one agent. ``etag`` and ``refused`` are about the settings it applied."""

    def __init__(
        self,
        web: Web,
        *,
        token: str,
        agent: Agent,
        spool: Spool,
        counters: Counters,
        clock: Clock,
        host: str,
        adopt: Callable[[str, Any], None],
    ) -> None:
        self._web, self._token, self._agent, self._spool = web, token, agent, spool
        self._counters, self._clock, self._host, self._adopt = counters, clock, host, adopt
        self._started_ms = clock.now_ms()
        self._registered = False
        self._rest = 0
        self._told = ""
        self.etag = ""
        self.refused: Mapping[str, str] = {}
        self.period_ms = 0
        self.tags: Mapping[str, str] = {}

    def beat(self) -> None:
        """Say how we do; apply what comes back."""
        if self._rest:
            self._rest -= 1
            return
        answer = ask(self._web, self._token, HEARTBEAT if self._registered else REGISTER, self._words())
        if answer.status in (200, 201):
            self._registered = True
            if "settings" in answer.told and answer.told.get("etag") != self.etag:
                self._adopt(str(answer.told.get("etag", "")), answer.told["settings"])
        elif answer.status == 404 and self._registered:
            self._registered = False  # somebody deleted us there: register anew
        elif answer.status in (404, 405):
            self._rest = _SELDOM
        self._note("" if answer.status in (200, 201) else answer.problem)

    def _note(self, problem: str) -> None:
        if problem and not self._told:
            log.warning("the server takes no heartbeat: %s", problem)
        if self._told and not problem:
            log.info("the server takes heartbeats again")
        self._told = problem

    def _words(self) -> dict[str, Any]:
        now_ms = self._clock.now_ms()
        health = self._agent.crew.health()
        return {
            "name": self._host,
            "version": VERSION,
            "platform": platform.platform()[:200],
            "period_ms": self.period_ms,
            "started_ms": self._started_ms,
            "now_ms": now_ms,
            "spool": self._spool.name,
            "sequence": self._counters.sequence,
            "spooled": self._spool.depth(),
            "oldest_ms": self._agent.waiting_ms(now_ms),
            "dropped_messages": self._spool.dropped[0],
            "dropped_samples": self._spool.dropped[1],
            "tags": {key: value for key, value in self.tags.items() if key != "host"},
            "collectors": {name[:100]: each.problem[:200] or "ok" for name, each in sorted(health.items())},
            "etag": self.etag,
            "refused": dict(self.refused),
        }
