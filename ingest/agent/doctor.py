"""``spm-agent doctor``: checks everything an agent needs once, and says what to do about each problem.

A check is a line: ok, a warning, or wrong. The only request asks which app the token belongs to; the only change is a
file that is written to the spool's folder and removed. ``run_checks`` yields one line after another, so that a slow
check is seen to be slow.
"""

import os
import re
import shutil
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ingest.agent import heartbeat
from ingest.agent.app import collect_once
from ingest.agent.server.connector import ServerConnector, without_credentials
from ingest.agent.server.push.amqp import AmqpPush
from ingest.agent.settings.config import Config
from ingest.agent.spool import segments
from ingest.agent.version import VERSION
from spm import limits
from spm.clock import Clock
from spm.errors import SpmError

OK, WARNING, WRONG = "ok", "warning", "wrong"
_SYMBOLS = {OK: "✓", WARNING: "!", WRONG: "✗"}
_SECRET = re.compile(r"^\s*(token|password)\s*=", re.MULTILINE)
_SOON_S = 14 * 86_400
_NEVER = "Jan  1 00:00:00 2100 GMT"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the output."""

    subject: str
    state: str
    message: str

    def __str__(self) -> str:
        return f"{_SYMBOLS[self.state]} {self.subject:<11} {self.message}"


def run_checks(own: Config, clock: Clock) -> Iterator[Check]:
    """Yields all checks; a check comes after those it depends on."""
    yield check_settings(own)
    if own.url.startswith("amqp"):
        yield check_broker(own)
        if not own.api_url:
            yield Check("site", WARNING, "without api_url there are no heartbeats, nor settings from the server")
    if (own.api_url or own.url).startswith("http"):
        yield from check_server(own, clock)
    yield check_spool(own.spool, own.spool_bytes)
    yield from check_collectors(own, clock)


def check_settings(own: Config) -> Check:
    """Check where the settings come from, and whether other users can read the token."""
    file = Path(own.file) if own.file else None
    message = f"version {VERSION}, host {own.host}, every {own.period_ms / 1_000:g} s; {own.file or 'no file'}"
    if file is not None and file.stat().st_mode & 0o004 and _SECRET.search(_text(file)):
        return Check("settings", WARNING, f"{message}: all users can read it and its secrets. chmod 600 {file}")
    return Check("settings", OK, message)


def check_server(own: Config, clock: Clock) -> Iterator[Check]:
    """Check the server: name, connection, TLS, token, clock."""
    try:
        connector = ServerConnector(own.api_url or own.url, tls=own.tls, proxy=own.proxy)
    except SpmError as error:
        yield Check("address", WRONG, str(error))
        return
    name, port = (
        (connector.proxy.hostname or "", connector.proxy.port or 80)
        if connector.proxy
        else (connector.host, connector.port)
    )
    try:
        addresses = {str(each[4][0]) for each in socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)}
    except OSError as error:
        yield Check("name", WRONG, f"{name} cannot be resolved: {error}. Check the address, and DNS.")
        return
    via = " (the proxy)" if connector.proxy else ""
    yield Check("name", OK, f"{name}{via} is {', '.join(sorted(addresses))}")
    connected = check_connection(connector, clock.now_ms())
    yield connected
    if connected.state != WRONG:
        yield from check_identity(own, connector, clock)


def check_broker(own: Config) -> Check:
    """Check whether the broker accepts the login and has the exchange."""
    place = without_credentials(own.url)
    try:
        problem = AmqpPush(own.url, token=own.token, source=own.host).probe()
    except (SpmError, ValueError) as error:  # the library is missing, or the address is not valid
        problem = str(error)
    return Check("broker", WRONG, f"{place}: {problem}") if problem else Check("broker", OK, f"{place} accepts us")


def check_connection(connector: ServerConnector, now_ms: int) -> Check:
    """Check TCP, and TLS if the address is https."""
    try:
        link = connector.connect(limits.AGENT_PROBE_S * 4)
    except ssl.SSLCertVerificationError as error:
        message = f"the certificate is not valid: {error.verify_message}. Set ca_file to the authority that signed it."
        return Check("TLS", WRONG, message)
    except ssl.SSLError as error:
        return Check("TLS", WRONG, f"{error.reason or error}. Does the port use TLS?")
    except OSError as error:
        message = f"{connector.host}:{connector.port}: {error}. Does the server run, and does a firewall block us?"
        return Check("connection", WRONG, message)
    try:
        if isinstance(link.sock, ssl.SSLSocket):
            return _certificate(link.sock, now_ms)
    finally:
        link.close()
    if connector.host in ("localhost", "127.0.0.1", "::1"):
        return Check("connection", OK, f"{connector.host}:{connector.port} answers")
    return Check(
        "connection", WARNING, f"{connector.host}:{connector.port} answers, without TLS: others can read the token"
    )


def _certificate(sock: ssl.SSLSocket, now_ms: int) -> Check:
    until_s = ssl.cert_time_to_seconds(str((sock.getpeercert() or {}).get("notAfter", _NEVER)))
    message = f"{sock.version()}, the certificate is valid until {datetime.fromtimestamp(until_s, UTC):%Y-%m-%d}"
    return Check("TLS", OK if until_s - now_ms / 1_000 > _SOON_S else WARNING, message)


def check_identity(own: Config, connector: ServerConnector, clock: Clock) -> Iterator[Check]:
    """Check the token, and the difference of the clocks."""
    started, before_ms = clock.monotonic(), clock.now_ms()
    answer = heartbeat.call_server(connector, own.token, heartbeat.ABOUT)
    took_ms = round((clock.monotonic() - started) * 1_000)
    if answer.status == 401:
        yield Check("token", WRONG, "it is unknown to the server, revoked, or may not send. Create one on “Send data”.")
        return
    if answer.status != 200 or "server_ms" not in answer.content:
        yield Check("token", WRONG, f"the server's answer is not as expected: {answer.problem}. Check the address.")
        return
    yield Check("token", OK, f"sends to the app “{answer.content.get('app')}”; answered in {took_ms} ms")
    offset_ms = before_ms + took_ms // 2 - int(answer.content["server_ms"])
    good = abs(offset_ms) < limits.AGENT_OFFSET_BAD_MS
    offset = f"{abs(offset_ms) / 1_000:.1f} s {'ahead of' if offset_ms > 0 else 'behind'} the server"
    yield Check("clock", OK if good else WRONG, offset if good else f"{offset}: samples get wrong times. Check NTP.")
    latest = str(answer.content.get("version", ""))
    if latest and latest != VERSION:
        yield Check("version", WARNING, f"this is {VERSION}, the server's is {latest}")


def check_spool(folder: Path, bytes_max: int) -> Check:
    """Check whether the spool can be written, how many messages wait, and whether the disk has enough space."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        probe = folder / "doctor"
        probe.write_bytes(b"x" * 4_096)
        probe.unlink()
        waiting, _ = segments.inspect(folder)
        acknowledged = segments.read_acknowledged(folder) or 0
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Check(
            "spool", WRONG, f"{folder} cannot be written: {error}. Set spool, or let user {os.getuid()} write there."
        )
    messages, size = sum(segment.waiting(acknowledged) for segment in waiting), sum(one.size for one in waiting)
    message = f"{folder}: {messages:,} messages wait ({size / 1e6:.1f} of {bytes_max / 1e6:.0f} MB)"
    if free < bytes_max:
        return Check("spool", WARNING, f"{message}; the disk has only {free / 1e6:.0f} MB free")
    return Check("spool", OK, message)


def check_collectors(own: Config, clock: Clock) -> Iterator[Check]:
    """Check each collector by running it once."""
    for name, points, problem, took_ms in collect_once(own, clock):
        if problem:
            yield Check(name, WRONG, problem)
        else:
            values = sum(len(point.fields) for point in points)
            slow = took_ms > own.collect_timeout_s * 1_000
            message = f"{values:,} values in {took_ms:.0f} ms"
            yield Check(
                name, WARNING if slow else OK, message + (": longer than the agent waits for it" if slow else "")
            )


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
