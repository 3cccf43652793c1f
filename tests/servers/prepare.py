"""``python -m tests.servers.prepare``: fetch what the real servers need and say what is missing.

Quiet about what is already there; ends with 1 and one sentence per server that cannot run.
"""

import sys
from pathlib import Path

from tests.servers.java import jars
from tests.servers.java.hbase import HBase
from tests.servers.postgres import Postgres
from tests.servers.processes import NotReady
from tests.servers.rabbitmq import RabbitMQ


def main() -> int:
    """Starts each server once, so that later starts are quick."""
    try:
        if not jars.present():
            print("fetching HBase's jars …", flush=True)
        jars.resolve()
    except NotReady as error:
        print(error)
    nowhere = Path("/nonexistent")  # asking what is missing writes nothing
    reasons = [r for r in (HBase(nowhere).missing(), RabbitMQ(nowhere).missing(), Postgres.missing()) if r]
    for reason in reasons:
        print(reason)
    return 1 if reasons else 0


if __name__ == "__main__":
    sys.exit(main())
