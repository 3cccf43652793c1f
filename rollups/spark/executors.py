"""Opens the executor of a run, and replaces Spark by this process if Spark is missing.

Only ``_open_spark`` imports PySpark, and only when it is called. On a store that exists in this process alone the tasks
run in this process. So they do without PySpark, without Java, or if a local Spark does not start: the run says so. A
cluster that the settings name is never replaced by this process: ``ClusterUnfit`` says what is wrong with it. The
master ``none`` chooses this process.
"""

import importlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rollups.check.comparison import RecountRequest, SeriesDifference
from rollups.crash_points import Hook
from rollups.delete.listing import Listing
from rollups.run.local import Executor, LocalExecutor
from rollups.spark.cluster import WITHOUT_SPARK, ClusterUnfit, is_local, refuse_local_files
from spm.errors import Refused
from spm.store.backends.base import Backend

if TYPE_CHECKING:
    from rollups.spark.runtime import SparkRuntime

_LOG = logging.getLogger(__name__)
_NO_MASTER = "none"


@dataclass(frozen=True, slots=True)
class ExecutorSettings:
    """What an executor needs: the store and its URL, Spark's master, a folder for scratch files, the crash points."""

    store: Backend
    url: str
    master: str
    folder: Path
    at: Hook


def open_executor(
    kind: str, store: Backend, *, url: str, master: str, folder: Path, at: Hook
) -> AbstractContextManager[Executor]:
    """Opens an executor of this kind ("spark" or "local") for one run."""
    return EXECUTORS[kind](ExecutorSettings(store, url, master, folder, at))


@contextmanager
def _open_local_executor(settings: ExecutorSettings) -> Iterator[Executor]:
    yield LocalExecutor(settings.store, settings.at)


@contextmanager
def _open_spark_executor(settings: ExecutorSettings) -> Iterator[Executor]:
    with ExitStack() as stack:
        executor: Executor = LocalExecutor(settings.store, settings.at)
        if settings.master == _NO_MASTER:
            _LOG.info("this run does without Spark, as SPM_SPARK_MASTER says")
        elif not settings.url.startswith("memory:"):
            try:
                executor = stack.enter_context(_open_spark(settings.url, settings.master, settings.folder)).executor()
            except (ImportError, Refused) as error:
                if isinstance(error, ClusterUnfit) and not is_local(settings.master):
                    raise
                _LOG.warning("this run does without Spark: %s", error)
                note = f"Spark did not start, so the run worked in one process: {error}"
                executor = LocalExecutor(settings.store, settings.at, name=WITHOUT_SPARK, note=note)
        yield executor


EXECUTORS: Mapping[str, Callable[[ExecutorSettings], AbstractContextManager[Executor]]] = {
    "local": _open_local_executor,
    "spark": _open_spark_executor,
}


def _open_spark(url: str, master: str, folder: Path) -> AbstractContextManager["SparkRuntime"]:
    """Imports PySpark and opens a session. Raises ``ImportError`` without PySpark."""
    refuse_local_files(url, master)
    runtime: AbstractContextManager[SparkRuntime]
    runtime = importlib.import_module("rollups.spark.runtime").open_runtime(url, master, folder)
    return runtime


def _require_spark(url: str, master: str, folder: Path) -> AbstractContextManager["SparkRuntime"]:
    """Opens a session. Raises ``Refused`` without PySpark, or if the settings choose none."""
    if master == _NO_MASTER:
        raise Refused("this site does without Spark", got=f"SPM_SPARK_MASTER={master}", remedy="Leave out --spark.")
    try:
        return _open_spark(url, master, folder)
    except ImportError as error:
        raise Refused("there is no Spark here", remedy="Install the packages of the extra `spark`.") from error


def compare_hours(url: str, master: str, folder: Path, request: RecountRequest) -> list[SeriesDifference]:
    """Compares hours in force with a recount, on Spark. Raises ``Refused`` without Spark, ``TasksFailed``."""
    with _require_spark(url, master, folder) as runtime:
        return runtime.find_differences(request)


def list_superseded(
    store: Backend, url: str, master: str, folder: Path, apps: Sequence[int], *, keep: int
) -> Iterator[tuple[int, dict[int, Listing]]]:
    """Lists app by app what a purge would delete, on Spark. Raises ``Refused`` without Spark, ``TasksFailed``."""
    with _require_spark(url, master, folder) as runtime:
        for app in apps:
            yield app, runtime.list_superseded(store, app, keep=keep)
