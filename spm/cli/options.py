"""The options of ``bin/start``: its arguments and the environment as one value.

Pure: it reads only its arguments. Enter by ``parse``.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PORT = 8000
NO_SPARK = "none"  # as SPM_SPARK_MASTER: runs work in one process
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # where a server that listens on all addresses is reached


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one start of the product."""

    root: Path
    data: Path
    host: str
    port: int
    json: bool
    agent: bool
    web_processes: int
    accept_store: bool = False
    spark: bool = True
    grpc_port: int = 0  # for OTLP; 0 is none

    @property
    def url(self) -> str:
        """The address of the pages, for people on this machine."""
        return self._url("localhost" if self.address in ("127.0.0.1", "::1") else self.address)

    @property
    def own_url(self) -> str:
        """The address for our own programs on this machine, which may not resolve any name, ``localhost`` neither."""
        return self._url(self.address)

    @property
    def address(self) -> str:
        """The address at which this machine reaches the web server."""
        return _ANY_ADDRESS.get(self.host, self.host)

    def _url(self, host: str) -> str:
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


def parse(arguments: Sequence[str], environ: Mapping[str, str], root: Path) -> Options:
    """Parse the arguments; print usage and exit with status 2 for an unknown one.

    ``SPM_DATA`` overrides ``--data``: ``bin/start`` has copied the argument to it, as an absolute path.
    """
    parser = argparse.ArgumentParser(prog="bin/start", add_help=False, allow_abbrev=False)
    parser.add_argument("--port", type=_port, default=PORT)
    parser.add_argument("--data", type=Path, default=root / "var")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--no-agent", action="store_true")
    parser.add_argument("--no-spark", action="store_true")
    parser.add_argument("--accept-store", action="store_true")
    namespace = parser.parse_args(arguments)
    return Options(
        root=root,
        data=Path(environ.get("SPM_DATA") or namespace.data).absolute(),
        host=environ.get("SPM_BIND", "127.0.0.1"),
        port=namespace.port,
        json=namespace.json,
        agent=not namespace.no_agent,
        web_processes=int(environ.get("SPM_WEB_PROCESSES", "1")),
        accept_store=namespace.accept_store,
        grpc_port=int(environ.get("SPM_OTLP_GRPC_PORT") or 0),
        spark=not namespace.no_spark and environ.get("SPM_SPARK_MASTER") != NO_SPARK,
    )


def _port(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; use a number from 1 to 65535")
    return number
