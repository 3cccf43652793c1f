"""What ``bin/stack`` does: the real servers of one data folder, up, down, or shown.

``up`` starts what does not run and prints the settings that make the product use it; servers keep their data and their
ports from one time to the next. ``install`` fetches what they need and says what is missing.
"""

import argparse
import sys
from pathlib import Path

from spm.clock import random_bytes
from tests.stack import jars, prepare
from tests.stack.hbase import HBase
from tests.stack.processes import NotReady
from tests.stack.rabbitmq import RabbitMQ
from tests.stack.spark import SparkCluster

ROOT = Path(__file__).resolve().parents[2]
SITE = "http://127.0.0.1:8000"  # where bin/start listens unless it is told otherwise


def main(words: list[str] | None = None) -> int:
    """See the module; the exit code."""
    parser = argparse.ArgumentParser(prog="bin/stack", description="HBase, RabbitMQ, Spark; on 127.0.0.1")
    parser.add_argument("verb", choices=["up", "down", "status", "install"])
    parser.add_argument("--data", type=Path, default=ROOT / "var" / "stack", help="where they keep everything")
    parser.add_argument("--spark", action="store_true", help="up: a Spark master with two workers as well")
    given = parser.parse_args(words)
    if given.verb == "install":
        return prepare.main()
    data = given.data.absolute()
    hbase = HBase(data / "hbase", lasting=True)
    rabbitmq = RabbitMQ(data / "rabbitmq", site=f"{SITE}/broker/{_secret(data / 'broker-secret')}")
    spark = SparkCluster(given.data.absolute() / "spark")
    try:
        if given.verb == "up" and given.spark:
            spark.start()
        if given.verb == "down":
            spark.stop()
        code = {"up": _up, "down": _down, "status": _status}[given.verb](hbase, rabbitmq)
        if given.verb != "down" and spark.alive():
            print(f"SPM_SPARK_MASTER={spark.url}")
        return code
    except NotReady as error:
        print(error, file=sys.stderr)
        return 1


def _secret(file: Path) -> str:
    """What the broker shows the site: made once."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(random_bytes(16).hex())
    return file.read_text()


def _up(hbase: HBase, rabbitmq: RabbitMQ) -> int:
    jars.resolve()
    rabbitmq.start()
    hbase.start()
    tables = hbase.folder / "tables-made"
    if not tables.exists():
        hbase.make_tables("spm")
        tables.touch()
    _print_settings(hbase, rabbitmq)
    return 0


def _down(hbase: HBase, rabbitmq: RabbitMQ) -> int:
    rabbitmq.stop()
    hbase.stop()
    return 0


def _status(hbase: HBase, rabbitmq: RabbitMQ) -> int:
    for server in (hbase, rabbitmq):
        print(f"# {type(server).__name__}: {'runs' if server.alive() else 'does not run'}, in {server.folder}")
    if hbase.alive() and rabbitmq.alive():
        _print_settings(hbase, rabbitmq)
        return 0
    return 3


def _print_settings(hbase: HBase, rabbitmq: RabbitMQ) -> None:
    print(f"SPM_STORE_URL={hbase.url}/spm")
    print("SPM_TRANSPORT=amqp")
    print(f"SPM_AMQP_URL={rabbitmq.url}?agents=1")
    print(f"SPM_BROKER_SECRET={rabbitmq.site.rpartition('/')[2]}")
    print(f"SPM_CELERY_BROKER_URL={rabbitmq.url}")


if __name__ == "__main__":
    sys.exit(main())
