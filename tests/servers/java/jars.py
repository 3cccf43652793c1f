"""The jars of HBase and OpenTSDB, resolved once into a cache outside the checkout.

``resolve`` lets Maven copy what a pom names into a folder called after the pom's own bytes, so that another pom means
another folder, and a folder that exists is whole: it is filled under another name and renamed at the end.
"""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from tests.servers.processes import NotReady

POM = Path(__file__).parent / "hbase" / "pom.xml"
OPENTSDB = Path(__file__).parent / "opentsdb" / "pom.xml"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
RESOLVE_S = 900
TRIES = 3  # what has come is kept, and a server of jars breaks off at times


def cache() -> Path:
    """Where downloads are kept: ``SPM_CACHE``, by default in the user's cache folder."""
    return Path(os.environ.get("SPM_CACHE") or Path.home() / ".cache" / "spm")


def folder(pom: Path = POM) -> Path:
    """Where the jars of the present pom are, or would be."""
    return cache() / f"{pom.parent.name}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"


def present(pom: Path = POM) -> bool:
    """Whether they have been resolved."""
    return folder(pom).is_dir()


def resolve(pom: Path = POM) -> Path:
    """The folder with all jars, fetched by Maven if need be; raises ``NotReady`` without Maven or on its failure."""
    if present(pom):
        return folder(pom)
    if shutil.which("mvn") is None:
        raise NotReady(f"Maven is missing: the jars of {pom.parent.name} cannot be fetched (Debian: apt install maven)")
    partial = folder(pom).with_suffix(f".{os.getpid()}")
    log = partial.with_suffix(".log")
    partial.mkdir(parents=True, exist_ok=True)
    command = ["mvn", "-B", "-q", "-f", str(pom), PLUGIN, "-DincludeScope=runtime", f"-DoutputDirectory={partial}"]
    for _ in range(TRIES):
        with log.open("wb") as out:
            done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, timeout=RESOLVE_S, check=False)
        if done.returncode == 0:
            break
    else:
        shutil.rmtree(partial)
        raise NotReady(f"Maven could not fetch the jars of {pom.parent.name}; see {log}")
    _publish(partial, folder(pom))
    log.unlink()
    return folder(pom)


def _publish(partial: Path, whole: Path) -> None:
    try:
        partial.rename(whole)
    except OSError:  # another process was first
        shutil.rmtree(partial)
