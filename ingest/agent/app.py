"""The agent put together from its settings: spool, push, collectors, heartbeats, and what pushed settings change.

``Whole`` is what runs. It reads the settings again under those that the server pushes, so that there is one order of
who wins, and applies the difference: period, tags, which collectors look, whether services are searched for.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ingest.agent import discover, heartbeat
from ingest.agent.agent import Agent
from ingest.agent.collect import KINDS, standard
from ingest.agent.collect.base import Collector
from ingest.agent.collect.host.itself import Counters, Itself
from ingest.agent.collect.threads import Crew, is_off
from ingest.agent.lines import Point
from ingest.agent.server.push import open_push
from ingest.agent.server.web import Web
from ingest.agent.settings import config, pushed
from ingest.agent.settings.config import Config, Target
from ingest.agent.spool.spool import Spool
from ingest.agent.threads import run
from spm import limits
from spm.clock import Clock
from spm.errors import SpmError

log = logging.getLogger("spm.agent")


@dataclass(frozen=True, slots=True)
class Told:
    """What the machine said: the way to read the settings again."""

    arguments: Sequence[str]
    environment: Mapping[str, str]

    def under(self, settings: Mapping[str, Any] | None = None) -> Config:
        """With settings that the server pushed."""
        return config.read(self.arguments, self.environment, pushed=settings)


class Whole:
    """One agent."""

    def __init__(self, told: Told, clock: Clock) -> None:
        self._told, self._clock = told, clock
        self.config = told.under()
        self.spool = Spool(self.config.spool, bytes_max=self.config.spool_bytes)
        own = self.config
        self._push = open_push(
            own.url, token=own.token, source=own.host, period_ms=own.period_ms, tls=own.tls, proxy=own.proxy
        )
        self._origins = own.origins
        counters = Counters()
        self.crew = Crew({**machine(), **services(own.targets), "itself": Itself(counters)}, clock)
        self.agent = Agent(
            crew=self.crew,
            spool=self.spool,
            push=self._push,
            clock=clock,
            tags=own.tags,
            counters=counters,
            patience_s=own.patience_s,
        )
        self._heart = self._made_heart(counters)
        self._apply(pushed.load(own.spool))

    def run(self, stop: threading.Event) -> None:
        """Until told to stop."""
        others = [(float(limits.AGENT_DISCOVER_S), self.discover)]
        if self._heart is not None:
            others.append((float(limits.AGENT_HEARTBEAT_S), self._heart.beat))
        period, host = (lambda: self.config.period_ms), self.config.host
        run(self.agent, clock=self._clock, stop=stop, period_ms=period, host=host, others=others)
        self.close()

    def close(self) -> None:
        """Let everything go."""
        self.crew.end()
        self._push.close()
        self.spool.close()

    def discover(self) -> None:
        """Look for services, and watch those that are new."""
        if not self.config.discover:
            return
        for found in discover.look(off=self.config.off, known=self.config.targets):
            if not found.advice and found.target.name not in self.crew.names():
                log.info("found %s, it is watched from now on", found.target.name)
                self.crew.add(found.target.name, made(found.target))

    def adopt(self, etag: str, settings: Any) -> None:
        """Take what is safe of pushed settings, and remember it."""
        taken = pushed.judge(etag, settings, self._origins)
        self._apply(taken)
        pushed.keep(self.config.spool, taken)
        log.info("settings of the server: %s", ", ".join(f"{k} = {v}" for k, v in taken.settings.items()) or "none")
        for name, why in taken.refused.items():
            log.warning("the server's setting %s is not applied: %s", name, why)

    def _apply(self, taken: pushed.Pushed) -> None:
        try:
            self.config = self._told.under(pushed.judge(taken.etag, dict(taken.settings), self._origins).settings)
        except SpmError as error:  # the machine's own file has changed meanwhile, and is wrong now
            log.warning("settings stay as they are: %s", error)
        own = self.config
        self.crew.silence(own.off)
        self.agent.adopt(tags=own.tags, patience_s=own.patience_s)
        self._push.announce(own.period_ms)
        if self._heart is not None:
            self._heart.etag, self._heart.refused = taken.etag, taken.refused
            self._heart.period_ms, self._heart.tags = own.period_ms, own.tags

    def _made_heart(self, counters: Counters) -> "heartbeat.Heart | None":
        own = self.config
        url = own.api_url or own.url
        if not url.startswith(("http://", "https://")):
            return None
        web = Web(url, tls=own.tls, proxy=own.proxy)
        return heartbeat.Heart(
            web,
            token=own.token,
            agent=self.agent,
            spool=self.spool,
            counters=counters,
            clock=self._clock,
            host=own.host,
            adopt=self.adopt,
        )


def machine() -> dict[str, Collector]:
    """The machine's own collectors."""
    return standard()


def services(targets: Sequence[Target]) -> dict[str, Collector]:
    """The collectors of configured services, by name."""
    return {target.name: made(target) for target in targets}


def made(target: Target) -> Collector:
    """The collector of a service, with the tags that the service was given."""
    collect, tags = KINDS[target.kind].make(target.options), target.options.get("tags", {})
    if not tags:
        return collect

    def tagged() -> Sequence[Point]:
        return [Point(p.measurement, p.fields, {**p.tags, **tags}, p.at_ms) for p in collect()]

    return tagged


def once(own: Config, clock: Clock) -> list[tuple[str, Sequence[Point], str, float]]:
    """Each collector once, one after another: name, points, what is wrong, milliseconds."""
    found: list[tuple[str, Sequence[Point], str, float]] = []
    for name, collector in {**machine(), **services(own.targets)}.items():
        if is_off(name, own.off):
            continue
        began = clock.monotonic()
        points: Sequence[Point] = ()
        problem = ""
        try:
            points = collector()
        except Exception as error:  # the screen goes on with the next
            problem = str(error) or type(error).__name__
        found.append((name, points, problem, (clock.monotonic() - began) * 1_000))
    return found
