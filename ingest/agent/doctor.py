"""``spm-agent doctor``: everything an agent needs, looked at once, and told on one screen with what to do.

A check is a line: ok, a warning, or wrong. Nothing is sent but the question who we are; nothing is changed but a file
that is written to the spool's folder and removed. ``examine`` yields the lines one after another, so that a slow one
is seen to be slow.
"""

import importlib
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
from ingest.agent.app import once
from ingest.agent.server.web import Web, without_user
from ingest.agent.settings.config import Config
from ingest.agent.spool import segments
from ingest.agent.version import VERSION
from spm import limits
from spm.clock import Clock
from spm.errors import SpmError

OK, WARNING, WRONG = "ok", "warning", "wrong"
_MARKS = {OK: "✓", WARNING: "!", WRONG: "✗"}
_SECRET = re.compile(r"^\s*(token|password)\s*=", re.MULTILINE)
_SOON_S = 14 * 86_400
_NEVER = "Jan  1 00:00:00 2100 GMT"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the screen."""

    what: str
    state: str
    says: str

    def __str__(self) -> str:
        return f"{_MARKS[self.state]} {self.what:<11} {self.says}"


def examine(own: Config, clock: Clock) -> Iterator[Check]:
    """All checks, those that others rest on first."""
    yield settings(own)
    if own.url.startswith("amqp"):
        yield broker(own)
        if not own.api_url:
            yield Check("site", WARNING, "without api_url there are no heartbeats, nor settings from the server")
    if (own.api_url or own.url).startswith("http"):
        yield from server(own, clock)
    yield spool(own.spool, own.spool_bytes)
    yield from collectors(own, clock)


def settings(own: Config) -> Check:
    """Where the settings come from, and whether others can read the token."""
    file = Path(own.file) if own.file else None
    said = f"version {VERSION}, host {own.host}, every {own.period_ms / 1_000:g} s; {own.file or 'no file'}"
    if file is not None and file.stat().st_mode & 0o004 and _SECRET.search(_text(file)):
        return Check("settings", WARNING, f"{said}: everybody may read it, with its secrets. chmod 600 {file}")
    return Check("settings", OK, said)


def server(own: Config, clock: Clock) -> Iterator[Check]:
    """From the name to the token."""
    try:
        web = Web(own.api_url or own.url, tls=own.tls, proxy=own.proxy)
    except SpmError as error:
        yield Check("address", WRONG, str(error))
        return
    name, port = (web.proxy.hostname or "", web.proxy.port or 80) if web.proxy else (web.host, web.port)
    try:
        places = {str(each[4][0]) for each in socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)}
    except OSError as error:
        yield Check("name", WRONG, f"{name} cannot be resolved: {error}. Is the address right, and is there DNS?")
        return
    via = " (the proxy)" if web.proxy else ""
    yield Check("name", OK, f"{name}{via} is {', '.join(sorted(places))}")
    connected = connection(web, clock.now_ms())
    yield connected
    if connected.state != WRONG:
        yield from identity(own, web, clock)


def broker(own: Config) -> Check:
    """Whether the broker lets us in, and has where to publish."""
    place = without_user(own.url)
    try:
        push = importlib.import_module("ingest.agent.server.push.amqp").AmqpPush(
            own.url, token=own.token, source=own.host
        )
        problem = push.probe()
    except (SpmError, ValueError) as error:  # no library, or an address that is none
        problem = str(error)
    return Check("broker", WRONG, f"{place}: {problem}") if problem else Check("broker", OK, f"{place} lets us in")


def connection(web: Web, now_ms: int) -> Check:
    """TCP, and TLS where there is any."""
    try:
        link = web.connect(limits.AGENT_PROBE_S * 4)
    except ssl.SSLCertVerificationError as error:
        said = f"the certificate does not hold: {error.verify_message}. Set ca_file to the authority that signed it."
        return Check("TLS", WRONG, said)
    except ssl.SSLError as error:
        return Check("TLS", WRONG, f"{error.reason or error}. Does the port speak TLS?")
    except OSError as error:
        said = f"{web.host}:{web.port}: {error}. Does it run, and does a firewall let us?"
        return Check("connection", WRONG, said)
    try:
        if isinstance(link.sock, ssl.SSLSocket):
            return _certificate(link.sock, now_ms)
    finally:
        link.close()
    if web.host in ("localhost", "127.0.0.1", "::1"):
        return Check("connection", OK, f"{web.host}:{web.port} answers")
    return Check("connection", WARNING, f"{web.host}:{web.port} answers, without TLS: others can read the token")


def _certificate(sock: ssl.SSLSocket, now_ms: int) -> Check:
    until_s = ssl.cert_time_to_seconds(str((sock.getpeercert() or {}).get("notAfter", _NEVER)))
    said = f"{sock.version()}, the certificate holds until {datetime.fromtimestamp(until_s, UTC):%Y-%m-%d}"
    return Check("TLS", OK if until_s - now_ms / 1_000 > _SOON_S else WARNING, said)


def identity(own: Config, web: Web, clock: Clock) -> Iterator[Check]:
    """The token, and how far the clocks are apart."""
    began, before_ms = clock.monotonic(), clock.now_ms()
    answer = heartbeat.ask(web, own.token, heartbeat.ABOUT)
    took_ms = round((clock.monotonic() - began) * 1_000)
    if answer.status == 401:
        yield Check(
            "token", WRONG, "the server does not know it, it is revoked, or it may not send. Make one on “Send data”."
        )
        return
    if answer.status != 200 or "server_ms" not in answer.told:
        yield Check("token", WRONG, f"the server does not answer as it should: {answer.problem}. Is the address right?")
        return
    yield Check("token", OK, f"sends to the app “{answer.told.get('app')}”; answered in {took_ms} ms")
    offset_ms = before_ms + took_ms // 2 - int(answer.told["server_ms"])
    good = abs(offset_ms) < limits.AGENT_OFFSET_BAD_MS
    said = f"{abs(offset_ms) / 1_000:.1f} s {'ahead of' if offset_ms > 0 else 'behind'} the server"
    yield Check("clock", OK if good else WRONG, said if good else f"{said}: samples get wrong times. Is there NTP?")
    latest = str(answer.told.get("version", ""))
    if latest and latest != VERSION:
        yield Check("version", WARNING, f"this is {VERSION}, the server's is {latest}")


def spool(folder: Path, bytes_max: int) -> Check:
    """Whether messages can wait, how many do, and whether there is room for more."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        trial = folder / "doctor"
        trial.write_bytes(b"x" * 4_096)
        trial.unlink()
        held, _ = segments.survey(folder)
        mark = segments.read_mark(folder) or 0
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Check(
            "spool", WRONG, f"{folder} cannot be written: {error}. Set spool, or give user {os.getuid()} the right."
        )
    waiting = sum(segment.waiting(mark) for segment in held)
    said = f"{folder}: {waiting:,} messages wait ({sum(s.size for s in held) / 1e6:.1f} of {bytes_max / 1e6:.0f} MB)"
    if free < bytes_max:
        return Check("spool", WARNING, f"{said}; the disk has only {free / 1e6:.0f} MB left")
    return Check("spool", OK, said)


def collectors(own: Config, clock: Clock) -> Iterator[Check]:
    """Each of them, once."""
    for name, points, problem, took_ms in once(own, clock):
        if problem:
            yield Check(name, WRONG, problem)
        else:
            values = sum(len(point.fields) for point in points)
            slow = took_ms > own.patience_s * 1_000
            said = f"{values:,} values in {took_ms:.0f} ms"
            yield Check(name, WARNING if slow else OK, said + (": slower than a look waits" if slow else ""))


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
