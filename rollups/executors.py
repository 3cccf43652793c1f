"""Opens the executor that a run asked for, and says so when it has to be another one.

Spark's modules are loaded by name, so that nothing needs PySpark but a run on it. Without PySpark, without a Java, or
on a store that lives in this process alone, the work is done in this process.
"""

import importlib
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rollups.local import Executor, LocalExecutor
from rollups.points import Hook
from spm.errors import Refused
from spm.store.backends.base import Backend

_LOG = logging.getLogger(__name__)


@contextmanager
def open_executor(kind: str, store: Backend, *, url: str, master: str, folder: Path, at: Hook) -> Iterator[Executor]:
    """An executor of this kind ("spark" or "local") for one run."""
    with ExitStack() as stack:
        executor: Executor = LocalExecutor(store, at)
        if kind == "spark" and not url.startswith("memory:"):
            try:
                session = stack.enter_context(importlib.import_module("rollups.session").spark(master, folder))
                executor = importlib.import_module("rollups.job").SparkExecutor(session, url)
            except (ImportError, Refused) as trouble:
                _LOG.warning("this run does without Spark: %s", trouble)
        yield executor
