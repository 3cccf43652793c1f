"""From an accepted sample to its mail at an SMTP server, with a thousand rules, and beside a tenant of slow rules.

The product runs as ``bin/start`` starts it, with two apps of 500 rules. Every second one more host crosses the
threshold of a rule of its own, which has a receiver of its own, so that no budget and no group joins them. Then another
organisation gets 500 rules, each of which reads an hour of its series every five seconds of it. Enter by ``alerts``.
"""

import json
import os
import re
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from spm.limits import RULE_PERIOD_MS
from tests.bench import report
from tests.servers.processes import free_ports
from tests.servers.product import ROOT, Served, start_product

HOSTS, PROBES, PERIOD_S, WARM_S, MEASURED_S = 40, 40, 10, 60, 90
RULES = 500  # of each app
PATIENCE_S = 2 * PERIOD_S  # a source that is late is waited for so long
LIMIT_S = RULE_PERIOD_MS / 1_000 + PATIENCE_S + 10
_WRITE = """
import json
from alerts import rulebook
from alerts.rulebook import Draft
from spm.accounts import tokens
from spm.accounts.models import App, Organisation
from spm.clock import SystemClock

def write(app, name, expr, threshold, receiver):
    draft = Draft(name=name, expr=expr, comparator=">", threshold=threshold, recovery=None, for_ms=0,
        keep_firing_for_ms=0, severity="warning", receivers=(receiver,), enabled=True)
    rulebook.write(app, draft, by=None, now_ms=SystemClock().now_ms())

given = json.loads({given!r})
organisation, _ = Organisation.objects.get_or_create(name=given["organisation"])
app = App.objects.create(organisation=organisation, name=given["app"])
for number, rule in enumerate(given["rules"]):
    write(app, f"rule {{number}}", *rule)
print("TOKEN", tokens.issue(app, name="load", scopes=["ingest"])[1])
"""
_LANES = """
from alerts.models import Lane
for lane in Lane.objects.select_related("app"):
    print("LANE", lane.app.name, lane.position_ms, lane.took_us)
"""
Rule = tuple[str, float, str]  # expression, threshold, receiver


class Inbox:
    """Takes mail, and notes when the first one for each address came."""

    def __init__(self) -> None:
        self.came_s: dict[str, float] = {}

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        """Note the time of a mail."""
        for address in envelope.rcpt_tos:
            self.came_s.setdefault(address, time.monotonic())
        return "250 OK"


class Senders(threading.Thread):
    """The hosts of one app, one after another in each period; ``crossed`` has the values above a threshold."""

    def __init__(self, served: Served, token: str, hosts: int, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._served, self._hosts, self.ended = served, hosts, threading.Event()
        self._headers = {"Authorization": f"Bearer {token}"}
        self.crossed: set[str] = set()
        self.accepted_s: dict[str, float] = {}

    def run(self) -> None:
        """Push until ``ended`` is set."""
        connection, number = self._served.connection(), 0
        while not self.ended.wait(PERIOD_S / self._hosts):
            host, now_ms = f"h{number % self._hosts}", time.time_ns() // 1_000_000
            crossed = set(self.crossed)
            values = ",".join(f"m{n}={95 if host in crossed and n == 0 else 50}" for n in range(10))
            connection.request("POST", "/write?precision=ms", f"s,host={host} {values} {now_ms}\n", self._headers)
            answer = connection.getresponse()
            answer.read()
            if answer.status == 204 and host in crossed:
                self.accepted_s.setdefault(host, time.monotonic())
            number += 1


def add_app(environment: dict[str, str], organisation: str, app: str, rules: list[Rule]) -> str:
    """Create an app with these rules; returns a token for its samples."""
    said = manage(
        environment, _WRITE.format(given=json.dumps({"organisation": organisation, "app": app, "rules": rules}))
    )
    match = re.search(r"TOKEN (\S+)", said)
    assert match, said
    return match[1]


def manage(environment: dict[str, str], text: str) -> str:
    """Run lines in the product's shell; returns what it printed."""
    command = [str(ROOT / "bin/manage"), "shell"]
    done = subprocess.run(command, input=text, env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def quiet_rules(count: int) -> list[Rule]:
    """Return rules that never fire, no two of them alike."""
    return [(f"s_m{n % 10}", 1_000.0 + n, f"quiet{n}@example.org") for n in range(count)]


def slow_rules() -> list[Rule]:
    """Return rules that read an hour of a metric's series, each with an expression of its own."""
    return [
        (f"sum(quantile_over_time(0.{90 + n % 9}, s_m{n % 10}[{3_000 + n}s:5s]))", 1e9, f"slow{n}@example.org")
        for n in range(RULES)
    ]


def push_past(served: Served, token: str) -> None:
    """Send an hour of all hosts, so that slow rules have something to read."""
    connection, end_ms = served.connection(), time.time_ns() // 1_000_000
    values = ",".join(f"m{n}={50 + n}" for n in range(10))
    for host in range(HOSTS):
        times = range(end_ms - 3_600_000, end_ms, PERIOD_S * 1_000)
        body = "".join(f"s,host=h{host} {values} {at_ms}\n" for at_ms in times)
        connection.request("POST", "/write?precision=ms", body, {"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        answer.read()
        if answer.status != 204:
            raise RuntimeError(f"the past was refused: {answer.status}")


def probe(name: str, senders: Senders, inbox: Inbox, first: int) -> None:
    """Let some hosts cross their thresholds, one a second; prints how long their mails took."""
    hosts = [f"h{number}" for number in range(first, first + PROBES // 2)]
    for host in hosts:
        senders.crossed.add(host)
        time.sleep(1)
    until_s = time.monotonic() + MEASURED_S
    while time.monotonic() < until_s and any(f"{host}@example.org" not in inbox.came_s for host in hosts):
        time.sleep(0.1)
    end_s = time.monotonic()
    took_s = [inbox.came_s.get(f"{host}@example.org", end_s) - senders.accepted_s[host] for host in hosts]
    p50, p95 = np.percentile(took_s, [50, 95]).tolist()
    lost = sum(f"{host}@example.org" not in inbox.came_s for host in hosts)
    report.line(name, mails=len(took_s), lost=lost, p50_s=p50, p95_s=p95, most_s=max(took_s), limit_s=LIMIT_S)


def lanes(environment: dict[str, str]) -> None:
    """Print how far each app is judged, and how long its last operation took."""
    for line in manage(environment, _LANES).splitlines():
        if line.startswith("LANE"):
            _, name, position_ms, took_us = line.split()
            report.line(f"lane of {name}", behind_s=time.time() - int(position_ms) / 1e3, took_s=int(took_us) / 1e6)


def measure(folder: Path) -> None:
    """Print how long mails take, without and with a neighbour of slow rules."""
    inbox, [port] = Inbox(), free_ports(1)
    controller = Controller(inbox, hostname="127.0.0.1", port=port)
    controller.start()
    data = folder / "data"
    environment = {
        **os.environ,
        "SPM_DATA": str(data),
        "SPM_SMTP_URL": f"smtp://127.0.0.1:{port}",
        "SPM_CONFIRM_RECEIVERS": "0",
    }
    served = start_product(data, environment=environment)
    threads = list[Senders]()
    try:
        probes: list[Rule] = [(f's_m0{{host="h{n}"}}', 90.0, f"h{n}@example.org") for n in range(PROBES)]
        for app, rules in (("first", probes + quiet_rules(RULES - PROBES)), ("second", quiet_rules(RULES))):
            threads.append(Senders(served, add_app(environment, "Acme", app, rules), HOSTS, app))
            threads[-1].start()
        time.sleep(WARM_S)
        probe("1,000 rules, accepted to mail", threads[0], inbox, 0)
        lanes(environment)
        token = add_app(environment, "Slow", "slow", slow_rules())
        push_past(served, token)
        threads.append(Senders(served, token, HOSTS, "slow"))
        threads[-1].start()
        time.sleep(WARM_S)
        probe("beside another tenant's 500 slow rules", threads[0], inbox, PROBES // 2)
        lanes(environment)
    finally:
        for each in threads:
            each.ended.set()
        served.stop()
        controller.stop()


def alerts(options: object) -> None:
    """Print how long mails take in a product of its own."""
    with tempfile.TemporaryDirectory(prefix="spm-bench-") as name:
        measure(Path(name))
