"""The agent assembled from its settings: spool, push, collectors, heartbeats, and settings pushed by the server.

Enter by ``AgentApp``. When the server pushes settings, it reads all settings again with the pushed ones included, so
that one order of precedence holds. Then it applies what has changed: period, labels, disabled collectors, discovery.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ingest.agent import discover, heartbeat
from ingest.agent.agent import Agent
from ingest.agent.collect.base import Collector
from ingest.agent.collect.host.own_metrics import Counters, SelfCollector
from ingest.agent.collect.registry import KINDS, host_collectors
from ingest.agent.collect.threads import CollectorThreads, is_off
from ingest.agent.lines import Point
from ingest.agent.server.connector import ServerConnector
from ingest.agent.server.push import open_push
from ingest.agent.settings import config, pushed
from ingest.agent.settings.config import Config, Target
from ingest.agent.spool.spool import Spool
from ingest.agent.threads import run_agent
from spm import limits
from spm.clock import Clock
from spm.errors import SpmError

log = logging.getLogger("spm.agent")


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """The arguments and the environment of the process, from which the settings can be read again."""

    arguments: Sequence[str]
    environment: Mapping[str, str]

    def read(self, settings: Mapping[str, Any] | None = None) -> Config:
        """Returns the settings, with those that the server pushed."""
        return config.read(self.arguments, self.environment, pushed=settings)


class AgentApp:
    """One running agent."""

    def __init__(self, source: ConfigSource, clock: Clock) -> None:
        self._source, self._clock = source, clock
        self.config = source.read()
        self.spool = Spool(self.config.spool, bytes_max=self.config.spool_bytes)
        own = self.config
        self._push = open_push(
            own.url, token=own.token, source=own.host, period_ms=own.period_ms, tls=own.tls, proxy=own.proxy
        )
        self._origins = own.origins
        counters = Counters()
        self.collectors = CollectorThreads(
            {**host_collectors(), **service_collectors(own.targets), "itself": SelfCollector(counters)}, clock
        )
        self.agent = Agent(
            collectors=self.collectors,
            spool=self.spool,
            push=self._push,
            clock=clock,
            labels=own.labels,
            counters=counters,
            collect_timeout_s=own.collect_timeout_s,
        )
        self._heartbeat = self._make_heartbeat(counters)
        self._apply_settings(pushed.load(own.spool))

    def run(self, stop: threading.Event) -> None:
        """Collect and push until ``stop`` is set; then close everything."""
        periodic = [(float(limits.AGENT_DISCOVER_S), self.discover)]
        if self._heartbeat is not None:
            periodic.append((float(limits.AGENT_HEARTBEAT_S), self._heartbeat.send))
        period, host = (lambda: self.config.period_ms), self.config.host
        run_agent(self.agent, clock=self._clock, stop=stop, period_ms=period, host=host, periodic=periodic)
        self.close()

    def close(self) -> None:
        """Stop the collectors, close connection and spool."""
        self.collectors.end()
        self._push.close()
        self.spool.close()

    def discover(self) -> None:
        """Search for services, and start collectors for new ones."""
        if not self.config.discover:
            return
        for service in discover.discover_services(off=self.config.off, known=self.config.targets):
            if not service.advice and service.target.name not in self.collectors.names():
                log.info("found %s, it is watched from now on", service.target.name)
                self.collectors.add(service.target.name, make_collector(service.target))

    def apply_pushed(self, etag: str, settings: Any) -> None:
        """Apply the safe ones of pushed settings, and save them for the next start."""
        applied = pushed.check_settings(etag, settings, self._origins)
        self._apply_settings(applied)
        pushed.save(self.config.spool, applied)
        log.info("settings of the server: %s", ", ".join(f"{k} = {v}" for k, v in applied.settings.items()) or "none")
        for name, why in applied.refused.items():
            log.warning("the server's setting %s is not applied: %s", name, why)

    def _apply_settings(self, applied: pushed.PushedSettings) -> None:
        try:
            self.config = self._source.read(
                pushed.check_settings(applied.etag, dict(applied.settings), self._origins).settings
            )
        except SpmError as error:  # the machine's own file has changed since the start, and is wrong now
            log.warning("the settings are not changed: %s", error)
        own = self.config
        self.collectors.set_off(own.off)
        self.agent.apply(labels=own.labels, collect_timeout_s=own.collect_timeout_s)
        self._push.set_period(own.period_ms)
        if self._heartbeat is not None:
            self._heartbeat.etag, self._heartbeat.refused = applied.etag, applied.refused
            self._heartbeat.period_ms, self._heartbeat.labels = own.period_ms, own.labels

    def _make_heartbeat(self, counters: Counters) -> "heartbeat.HeartbeatSender | None":
        own = self.config
        url = own.api_url or own.url
        if not url.startswith(("http://", "https://")):
            return None
        connector = ServerConnector(url, tls=own.tls, proxy=own.proxy)
        return heartbeat.HeartbeatSender(
            connector,
            token=own.token,
            agent=self.agent,
            spool=self.spool,
            counters=counters,
            clock=self._clock,
            host=own.host,
            apply_settings=self.apply_pushed,
        )


def service_collectors(targets: Sequence[Target]) -> dict[str, Collector]:
    """Returns the collectors of configured services, by name."""
    return {target.name: make_collector(target) for target in targets}


def make_collector(target: Target) -> Collector:
    """Returns the collector of a service, whose points have the labels of its configuration."""
    collect, labels = KINDS[target.kind].make(target.options), target.options.get("tags", {})
    if not labels:
        return collect

    def labelled() -> Sequence[Point]:
        return [Point(p.measurement, p.fields, {**p.labels, **labels}, p.at_ms) for p in collect()]

    return labelled


def collect_once(own: Config, clock: Clock) -> list[tuple[str, Sequence[Point], str, float]]:
    """Runs each collector once, one after another; returns (name, points, problem, milliseconds) of each."""
    results: list[tuple[str, Sequence[Point], str, float]] = []
    for name, collector in {**host_collectors(), **service_collectors(own.targets)}.items():
        if is_off(name, own.off):
            continue
        started = clock.monotonic()
        points: Sequence[Point] = ()
        problem = ""
        try:
            points = collector()
        except Exception as error:  # the next collector still runs
            problem = str(error) or type(error).__name__
        results.append((name, points, problem, (clock.monotonic() - started) * 1_000))
    return results
