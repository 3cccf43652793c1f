"""Opens the executor that a run asked for, and says so when it has to be another one.

Spark's modules are loaded by name, so that nothing needs PySpark but a run on it. Without PySpark, without a Java, or
on a store that lives in this process alone, the work is done in this process. A cluster that was asked for by name is
never replaced by this process: ``ClusterUnfit`` says what is wrong with it.
"""

import importlib
import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from rollups.check.comparison import Asked, Difference
from rollups.crash_points import Hook
from rollups.delete.listing import Listing
from rollups.run.local import Executor, LocalExecutor
from rollups.spark.cluster import ClusterUnfit, refuse_far_files
from spm.errors import Refused
from spm.store.backends.base import Backend

_LOG = logging.getLogger(__name__)


@contextmanager
def _on_spark(url: str, master: str, folder: Path, job: str) -> Iterator[tuple[ModuleType, Any]]:
    """The module of a job and a session for it; ``Refused`` where there is no Spark."""
    refuse_far_files(url, master)
    try:
        session, found = (importlib.import_module(f"rollups.spark.{name}") for name in ("session", job))
    except ImportError as trouble:
        raise Refused("there is no Spark here", remedy="Install the packages of the door `spark`.") from trouble
    with session.spark(master, folder) as opened:
        yield found, opened


def compare(url: str, master: str, folder: Path, question: Asked) -> list[Difference]:
    """Compare hours in force with a recount, on Spark. Raises ``Refused`` without a Spark, ``TasksFailed``."""
    with _on_spark(url, master, folder, "job") as (job, session):
        found: list[Difference] = job.differing(session, url, question)
    return found


def purge_lists(
    store: Backend, url: str, master: str, folder: Path, apps: Sequence[int], *, keep: int
) -> Iterator[tuple[int, dict[int, Listing]]]:
    """App by app what a purge would delete, listed on Spark. Raises ``Refused`` without a Spark, ``TasksFailed``."""
    with _on_spark(url, master, folder, "purge_listing") as (purge_listing, session):
        for app in apps:
            yield app, purge_listing.going(session, store, url, app, keep)


@contextmanager
def open_executor(kind: str, store: Backend, *, url: str, master: str, folder: Path, at: Hook) -> Iterator[Executor]:
    """An executor of this kind ("spark" or "local") for one run."""
    with ExitStack() as stack:
        executor: Executor = LocalExecutor(store, at)
        if kind == "spark" and not url.startswith("memory:"):
            refuse_far_files(url, master)
            try:
                session = stack.enter_context(importlib.import_module("rollups.spark.session").spark(master, folder))
                executor = importlib.import_module("rollups.spark.job").SparkExecutor(session, url)
            except ClusterUnfit:
                raise
            except (ImportError, Refused) as trouble:
                _LOG.warning("this run does without Spark: %s", trouble)
        yield executor
