"""Writes systemd's units for the programs of the product: prepare, web with its socket, worker, beat, agent.

Each unit runs ``bin/run`` as a user without privileges, on a read-only file system but for the data folder. The web
server gets its socket from systemd, so that connections wait while it restarts. Enter by ``units``, which is pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spm.limits import STOP_GRACE_S

TARGET = "spm.target"
_PROGRAMS = {
    "spm-prepare.service": "SPM: migrations, static files, compiled kernels",
    "spm-web.service": "SPM: web server",
    "spm-worker.service": "SPM: worker",
    "spm-beat.service": "SPM: sends the scheduled tasks",
    "spm-agent.service": "SPM: metrics of this host",
}
_ARGUMENTS = {"spm-worker.service": " --no-beat"}
_HOW = """\
# Units of systemd for this checkout. Each part between two lines "# /etc/..." is a file of that name.
#   useradd --system --home-dir {data} {user}; install -d -m 0700 -o {user} {data}
#   bin/manage units --directory /etc/systemd/system
#   systemctl daemon-reload && systemctl enable --now spm.target spm-web.socket
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the product lies, where it keeps its data, and which user runs it."""

    root: Path
    environment: Path
    data: Path
    user: str
    host: str
    port: int


def units(place: Place) -> dict[str, str]:
    """Return the text of each unit by its file name."""
    files = {TARGET: _target(), "spm-web.socket": _socket(place)}
    return files | {name: _service(name, place) for name in _PROGRAMS}


def printed(files: Mapping[str, str], place: Place) -> str:
    """Return all units as one text for people, each below its path."""
    parts = [f"# /etc/systemd/system/{name}\n{text}" for name, text in files.items()]
    return "\n".join([_HOW.format(data=place.data, user=place.user), *parts])


def _target() -> str:
    wants = " ".join(name for name in _PROGRAMS if name != "spm-prepare.service")
    return f"[Unit]\nDescription=SPM\nWants={wants}\n\n[Install]\nWantedBy=multi-user.target\n"


def _socket(place: Place) -> str:
    host = f"[{place.host}]" if ":" in place.host else place.host
    return f"""\
[Unit]
Description=SPM: the web server's socket
PartOf={TARGET}

[Socket]
ListenStream={host}:{place.port}
Backlog=2048

[Install]
WantedBy=sockets.target
"""


def _service(name: str, place: Place) -> str:
    program = name.removeprefix("spm-").removesuffix(".service")
    port = f" --port {place.port}" if program in ("prepare", "web", "agent") else ""
    return f"""\
[Unit]
Description={_PROGRAMS[name]}
{_order(program)}

[Service]
{_kind(program)}
ExecStart={place.root}/bin/run {program}{port}{_ARGUMENTS.get(name, "")}
WorkingDirectory={place.root}
Environment=SPM_DATA={place.data} SPM_ENVIRONMENT={place.environment} SPM_BIND={place.host}
User={place.user}
UMask=0077
NoNewPrivileges=yes
ProtectSystem=strict
ReadWritePaths={place.data}
PrivateTmp=yes
RestrictSUIDSGID=yes
LockPersonality=yes
"""


def _order(program: str) -> str:
    if program == "prepare":
        return f"After=network-online.target\nWants=network-online.target\nPartOf={TARGET}"
    lines = ["Requires=spm-prepare.service", "After=spm-prepare.service", f"PartOf={TARGET}"]
    if program == "web":
        lines[0:2] = ["Requires=spm-prepare.service spm-web.socket", "After=spm-prepare.service spm-web.socket"]
    if program == "agent":
        lines[1] = "After=spm-prepare.service spm-web.service"
    return "\n".join(lines)


def _kind(program: str) -> str:
    if program == "prepare":  # its output has the first password; the file first-login.json keeps it
        return "Type=oneshot\nRemainAfterExit=yes\nStandardOutput=null\nTimeoutStartSec=900"
    kind = "Type=notify\nExecReload=/bin/kill -HUP $MAINPID" if program == "web" else "Type=exec"
    return f"{kind}\nKillMode=mixed\nTimeoutStopSec={STOP_GRACE_S + 5:g}\nRestart=always\nRestartSec=2"
