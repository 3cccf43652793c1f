"""``spm-sidecar graphite|opentsdb|statsd``: listen on this machine, and push the metrics with a token.

--bind ADDRESS      address to listen on, 127.0.0.1 by default: neither protocol authenticates its senders
--port NUMBER       2003 for graphite, 4242 for opentsdb, 8125 for statsd; UDP and TCP
All other flags and SPM_AGENT_… variables are the agent's: --url, --token-file, --tags, --period-s, --spool …
"""

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence

from ingest.agent.agent import Agent
from ingest.agent.collect.host.own_metrics import Counters
from ingest.agent.collect.threads import Batch, CollectorThreads
from ingest.agent.server.push import open_push
from ingest.agent.server.push.http import HttpPush
from ingest.agent.settings import config
from ingest.agent.settings.config import Config
from ingest.agent.spool.spool import Spool
from ingest.agent.threads import run_agent
from ingest.sidecar.graphite import Graphite
from ingest.sidecar.intake import Intake, LineHandler
from ingest.sidecar.listen import Listener
from ingest.sidecar.opentsdb import OpenTsdb
from ingest.sidecar.statsd import Statsd
from spm.clock import Clock, SystemClock
from spm.errors import SpmError

PORTS = {"graphite": 2003, "opentsdb": 4242, "statsd": 8125}
HANDLERS: Mapping[str, Callable[[], LineHandler]] = {
    "graphite": Graphite,
    "opentsdb": OpenTsdb,
    "statsd": Statsd,
}


class _IntakeThreads(CollectorThreads):
    """Collector threads whose only collector is the intake; it answers immediately."""

    def __init__(self, intake: Intake, clock: Clock) -> None:
        super().__init__({}, clock)
        self._intake = intake
        self._logged_example = ""

    def collect(self, at_ms: int, collect_timeout_s: float) -> list[Batch]:
        """Returns the points since the last collection; logs one unreadable line per collection."""
        if self._intake.example != self._logged_example:
            self._logged_example = self._intake.example
            logging.getLogger("spm.sidecar").warning(
                "%d lines unreadable; the last: %s", self._intake.unreadable, self._logged_example
            )
        return [(at_ms, self._intake.collect(at_ms))]


def main(arguments: Sequence[str] | None = None) -> int:
    """Listen until a signal. Returns 0 after the signal, 2 if the settings, the port or the spool cannot be used."""
    parser = argparse.ArgumentParser(prog="spm-sidecar", usage=__doc__, add_help=False)
    parser.add_argument("protocol", choices=sorted(PORTS))
    parser.add_argument("--bind", default="127.0.0.1")
    parser.add_argument("--port", type=int)
    given, rest = parser.parse_known_args(sys.argv[1:] if arguments is None else arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        own = config.read(["--spool", _spool(rest, given.protocol), *rest], os.environ)
        _serve(own, given.protocol, given.bind, PORTS[given.protocol] if given.port is None else given.port)
    except (SpmError, OSError) as error:
        print(f"spm-sidecar: {error}", file=sys.stderr)
        return 2
    return 0


def _serve(own: Config, protocol: str, host: str, port: int) -> None:
    clock, stop, counters = SystemClock(), threading.Event(), Counters()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    intake = Intake(protocol, HANDLERS[protocol]())
    spool = Spool(own.spool, bytes_max=own.spool_bytes)
    push = open_push(own.url, token=own.token, source=own.host, period_ms=own.period_ms, tls=own.tls, proxy=own.proxy)
    if isinstance(push, HttpPush):
        push.set_sender(f"spm-{protocol}")
    listener = Listener(host, port, intake, clock)
    labels = {
        name: value for name, value in own.labels.items() if name != "host"
    }  # senders name their hosts themselves
    agent = Agent(
        collectors=_IntakeThreads(intake, clock), spool=spool, push=push, clock=clock, labels=labels, counters=counters
    )
    logging.getLogger("spm.sidecar").info("%s on %s port %d, to %s", protocol, host, listener.port, own.url)
    try:
        run_agent(agent, clock=clock, stop=stop, period_ms=lambda: own.period_ms, host=own.host)
        listener.close()
        agent.collect()
    finally:
        push.close()
        spool.close()


def _spool(rest: Sequence[str], protocol: str) -> str:
    """Returns a folder beside the agent's spool, because a spool has one owner."""
    return f"{config.read(list(rest), os.environ, need_token=False).spool}-{protocol}"


if __name__ == "__main__":
    sys.exit(main())
