"""The one module through which others use PySpark: a session on a store, and the jobs that run on it.

Enter by ``open_runtime``. It is imported only when a run needs Spark (``rollups.spark.executors``).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from rollups.check.comparison import RecountRequest, SeriesDifference
from rollups.delete.listing import Listing
from rollups.run.local import Executor
from rollups.spark import job, purge_listing
from rollups.spark.session import spark
from spm.store.backends.base import Backend


@dataclass(frozen=True, slots=True)
class SparkRuntime:
    """An open Spark session, whose jobs work on the store at ``url``."""

    session: SparkSession
    url: str

    def executor(self) -> Executor:
        """The executor of a run's tasks."""
        return job.SparkExecutor(self.session, self.url)

    def find_differences(self, request: RecountRequest) -> list[SeriesDifference]:
        """Compares hours in force with a recount. Raises ``TasksFailed``."""
        return job.find_differences(self.session, self.url, request)

    def list_superseded(self, store: Backend, app: int, *, keep: int) -> dict[int, Listing]:
        """Lists by day what a purge would delete. Raises ``TasksFailed``."""
        return purge_listing.list_superseded(self.session, store, self.url, app, keep)


@contextmanager
def open_runtime(url: str, master: str, folder: Path) -> Iterator[SparkRuntime]:
    """Opens a session for one run. Raises ``Refused`` if Spark or its workers fail."""
    with spark(master, folder) as session:
        yield SparkRuntime(session, url)
