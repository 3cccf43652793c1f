"""The worker's entry point: ``python -m spm.worker [--concurrency N] [--beat-thread | --beat-only]``.

It does what ``celery -A spm.celery worker`` does, with this product's choices, and without Celery's command line: that
one loads a shell with completion and colours, a fifth of the time that a killed worker takes to be back. It uses
threads, not prefork: tasks wait for the database, the store or a Spark run in another process, so one process is enough
and a long run delays no alert. A forked child would cost 150 MB more and must not share LMDB.
"""

import gc
import logging
import os
import signal
import sys
from argparse import ArgumentParser
from collections.abc import Sequence

from celery.beat import Service
from django.db import DEFAULT_DB_ALIAS, connections

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "spm.settings")

from spm.celery import PunctualScheduler, app  # reads the settings
from spm.settings.database_files import hold_database_files
from spm.settings.process_memory import do_without_pandas, keep_intermediate_code_packed, trim_heap_regularly

THREADS = 24  # as many as tasks may run at once, all kinds together: no tenant's work keeps others' from a thread
DATABASE_CONNECTION_S = 60  # how long a thread keeps its connection: to open SQLite for each task costs more than it


def main(words: Sequence[str]) -> int:
    """Works until asked to end. Returns the exit status."""
    parser = ArgumentParser(prog="python -m spm.worker", description="Consumes messages and does the product's tasks.")
    parser.add_argument("--concurrency", type=int, default=THREADS, metavar="N", help=f"tasks at a time ({THREADS})")
    beat = parser.add_mutually_exclusive_group()
    beat.add_argument("--beat-thread", action="store_true", help="send the schedule's tasks too: one worker must")
    beat.add_argument("--beat-only", action="store_true", help="send the schedule's tasks, and do none")
    options = parser.parse_args(words)
    if options.beat_only:
        return send_schedule()
    do_without_pandas()
    keep_intermediate_code_packed()
    gc.disable()  # all that is loaded now stays: looking through it again and again is a tenth of a start
    worker = app.Worker(
        pool_cls="threads",
        concurrency=options.concurrency,
        beat_thread=options.beat_thread,
        loglevel=logging.INFO,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
    worker.set_process_status = lambda _: None  # lists of processes show the command, as for all others
    gc.freeze()  # nor does it need to be looked through later
    gc.enable()
    hold_database_files()
    trim_heap_regularly()
    connections[DEFAULT_DB_ALIAS].settings_dict["CONN_MAX_AGE"] = DATABASE_CONNECTION_S
    worker.start()
    return worker.exitcode or 0


def send_schedule() -> int:
    """Sends the schedule's tasks until asked to end; the schedule stays in memory, as in a worker."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    service = Service(app, scheduler_cls=PunctualScheduler)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.stop())  # it looks at least once a second
    service.start()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
