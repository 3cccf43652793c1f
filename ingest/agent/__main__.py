"""``python -m ingest.agent``: read the settings, put the parts together, run until told to stop."""

import logging
import os
import signal
import sys
import threading

from ingest.agent import collect, config
from ingest.agent.agent import Agent
from ingest.agent.collect.itself import Counters, Itself
from ingest.agent.push import open_push
from ingest.agent.run import run
from ingest.agent.spool import Spool
from spm.clock import SystemClock
from spm.errors import SpmError


def main() -> int:
    """0 after a clean stop, 2 if the settings are wrong or the spool cannot be used."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        settings = config.read(sys.argv[1:], os.environ)
        push = open_push(settings.url, token=settings.token, source=settings.host)
        spool = Spool(settings.spool, bytes_max=settings.spool_bytes)
    except (SpmError, OSError) as error:
        print(f"spm-agent: {error}", file=sys.stderr)
        return 2
    stop, counters, clock = threading.Event(), Counters(), SystemClock()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    collectors: dict[str, collect.Collector] = {**collect.standard(), "itself": Itself(counters)}
    agent = Agent(collectors=collectors, spool=spool, push=push, clock=clock, tags=settings.tags, counters=counters)
    logging.getLogger("spm.agent").info("watching %s every %g s", settings.host, settings.period_ms / 1_000)
    run(agent, clock=clock, stop=stop, period_ms=settings.period_ms, host=settings.host)
    push.close()
    spool.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
