"""``spm-agent install --print``: prints a unit for systemd that runs the agent as a user without privileges.

It only prints; the administrator decides where the unit goes. The unit limits memory and processor time, makes
everything read-only except the spool's folder, and restarts the agent when it ends. Its user cannot read the secrets of
root, so systemd passes it the token and the configuration, which may hold passwords. docs/how-to/agent.md lists what
such a user cannot see (names of other users' programs, PIDs of listeners).
"""

import json
import shlex
import sys
from pathlib import Path

from ingest.agent.settings.config import FILE, Config

_UNIT = """\
# /etc/systemd/system/spm-agent.service   then: systemctl daemon-reload && systemctl enable --now spm-agent
[Unit]
Description=SPM agent: metrics of this host
After=network-online.target
Wants=network-online.target

[Service]
ExecStart={command} --config %d/agent.toml
Environment=SPM_AGENT_SPOOL=/var/lib/spm-agent
StateDirectory=spm-agent
StateDirectoryMode=0700
LoadCredential=agent.toml:{file}
LoadCredential=token:/etc/spm-agent/token
Environment=SPM_AGENT_TOKEN_FILE=%d/token
DynamicUser=yes
Restart=always
RestartSec=5
MemoryMax=128M
CPUQuota=20%
Nice=5
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
RestrictSUIDSGID=yes
LockPersonality=yes

[Install]
WantedBy=multi-user.target

# /etc/spm-agent/token: the token alone, mode 0600.
# {file}, mode 0600, with passwords of services if they need any:
{settings}"""


def systemd_unit(own: Config) -> str:
    """Returns the unit and, below it as comments, the configuration file that it reads."""
    program = Path(sys.argv[0]).resolve()
    arguments = [str(program)] if program.suffix == ".pyz" else ["-m", "ingest.agent"]
    command = shlex.join([sys.executable, *arguments])
    return _UNIT.format(command=command, file=FILE, settings="".join(f"#   {line}\n" for line in _settings(own)))


def _settings(own: Config) -> list[str]:
    lines = [f"url = {_quoted(own.url)}", f"host = {_quoted(own.host)}", f"period_s = {own.period_ms / 1_000:g}"]
    labels = {name: value for name, value in own.labels.items() if name != "host"}
    if labels:
        pairs = ", ".join(f"{_quoted(name)} = {_quoted(value)}" for name, value in labels.items())
        lines.append(f"tags = {{ {pairs} }}")
    return lines


def _quoted(text: str) -> str:
    """Returns a TOML string; TOML reads JSON's strings."""
    return json.dumps(text, ensure_ascii=False)
