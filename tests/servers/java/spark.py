"""Spark standalone from PySpark's own jars: a master and two workers, each a process on the loopback address.

The workers are as an operator would start them: with a Spark and a Python, in folders of their own, and with nothing of
ours on their path. ``SparkCluster(folder).start()`` answers when both are known to the master.
"""

import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.servers.processes import NotReady, Process, answers, kept_ports, wait_ready

READY_S = 240  # of a busy machine
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
WORKERS = {"worker-1": "127.0.0.1", "worker-2": "127.0.0.2"}  # a task gets no rival on the host that it runs on
WORKER_CORES, WORKER_MEMORY = 1, "1g"
_ADDRESS = "127.0.0.1"
_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Djava.net.preferIPv4Stack=true")
_PASSED_ON = ("PATH", "HOME", "LANG", "TMPDIR")  # of this process's environment: no PYTHONPATH, no folder of kernels


@dataclass(frozen=True, slots=True)
class SparkCluster:
    """One cluster in ``folder``."""

    folder: Path

    @property
    def url(self) -> str:
        """The master's address, as ``SPM_SPARK_MASTER`` takes it."""
        return f"spark://{_ADDRESS}:{self._ports()['master']}"

    def missing(self) -> str | None:
        """Why it cannot run here, or ``None``."""
        if shutil.which("java") is None:
            return "Spark needs Java 17 or newer"
        return None if importlib.util.find_spec("pyspark") else "PySpark is not installed: the extra spark brings it"

    def start(self) -> str:
        """Start what does not run, wait until both workers are registered, and say where; raises ``NotReady``."""
        reason = self.missing()
        if reason:
            raise NotReady(reason)
        ports = self._ports()
        if not self.process("master").alive():  # workers of a master that was killed do not always find the next one
            self.stop()
        self._start("master", [MASTER, "--host", _ADDRESS, "--port", str(ports["master"]), "--webui-port", "0"])
        wait_ready(lambda: answers(ports["master"]), [self.process("master")], READY_S)
        for name, host in WORKERS.items():
            self._start(
                name,
                [
                    WORKER,
                    "--host",
                    host,
                    "--webui-port",
                    "0",
                    "--cores",
                    str(WORKER_CORES),
                    "--memory",
                    WORKER_MEMORY,
                    "--work-dir",
                    str(self.folder / name),
                    self.url,
                ],
            )
        wait_ready(self._registered, [self.process(name) for name in WORKERS], READY_S)
        return self.url

    def stop(self) -> None:
        """End the workers, which end their executors, then the master."""
        for name in (*WORKERS, "master"):
            self.process(name).stop(20)

    def discard(self) -> None:
        """End it for good; workers are asked, since only they end their executors."""
        self.stop()

    def alive(self) -> bool:
        """Whether all three run."""
        return all(self.process(name).alive() for name in (*WORKERS, "master"))

    def process(self, name: str) -> Process:
        """``master`` or one of ``WORKERS``."""
        return Process(name, self.folder)

    def _registered(self) -> bool:
        return all("Successfully registered with master" in self._log_text(name) for name in WORKERS)

    def _log_text(self, name: str) -> str:
        log = self.process(name).log
        return log.read_text(errors="replace") if log.exists() else ""

    def _start(self, name: str, words: list[str]) -> None:
        home = _spark_home()
        (self.folder / name).mkdir(parents=True, exist_ok=True)
        python = os.pathsep.join([str(Path(sys.base_prefix) / "bin"), os.environ.get("PATH", "")])
        environment = {k: v for k, v in os.environ.items() if k in _PASSED_ON} | {"PATH": python}
        [core] = (home / "jars").glob("spark-core_*.jar")
        scala = core.name.split("_")[1].split("-")[0]  # what Spark's own start scripts look up
        environment = {
            **environment,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": WORKERS.get(name, _ADDRESS),
            "SPARK_SCALA_VERSION": scala,
        }
        logging = f"-Dlog4j2.configurationFile=file:{Path(__file__).with_name('spark.log4j2.properties')}"
        command = ["java", "-Xmx256m", *_JVM, logging, "-cp", f"{home / 'jars'}/*", *words]
        self.process(name).start(command, environment)

    def _ports(self) -> dict[str, int]:
        return kept_ports(self.folder, ("master",))


def _spark_home() -> Path:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None, "BUG: asked for PySpark's folder where it is not installed"
    assert spec.origin is not None, "BUG: PySpark without a file"
    return Path(spec.origin).parent
