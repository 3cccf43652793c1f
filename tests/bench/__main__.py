"""`python -m tests.bench WHAT [--steps N] [--agent-steps N] [--no-peer]`, where WHAT is one of

ingest   the fleet in bodies of 10,000 lines, then of one agent each: values/s, CPU µs per value by process, p50/p95
agents   bodies of 100 values of 1,000 agents over 32 and 256 connections, and 100 a second: CPU ms a request of all
         processes, requests/s, p50/p99 (--agents, --rounds, --protocol NAME,NAME)
small_bodies  in one process: CPU µs a body of 100 values by step, alone and together, and with ten new series beside
         --series known ones (--protocol NAME, --agents)
protocols  the same in every protocol, of 100 and of 4,000 hosts (--protocol NAME, --large-values, --agent-values)
compact  runs on Spark in local[2] over --steps reports and ten times as many: samples/s after start-up, CPU by process,
         one dirty hour in either store, beside a plain Spark SQL job over the same samples in Parquet
disk     on a grid and with ±40 ms of jitter: values/s and CPU of `roll`, bytes per value in chunks and timelines,
         and of the whole data folder after `purge`
query    a 12 h single-series max-per-minute query and three others: p50/p95 as the client sees them
tsbs     query types of the Time Series Benchmark Suite on 100 hosts × 24 h and 4,000 hosts × 30 min, rolled up, at
         random places: p50/p95 as the client sees them, CPU ms of the server, every point checked against the raw
         input (--times, --only, --scale)
tail     an hour of 100 agents, one request per agent and 10 s, without a run: one hour of one series; and how long an
         accepted sample takes to be seen
month    30 days of 100 hosts and 10 metrics, rolled up: charts of them by a process that has just started, and again
names    one app of --series: its names and a selector of ten series, warm; a cold start, and memory of the process
listeners  --listeners streams of events: memory of the server, CPU while nothing happens, and how soon all hear of data
slow     --slow slow heads, bodies, readers and idle connections each, held for --hold seconds: pings, pushes, queries
         and memory without and beside them (--url and --token of a running server, or --proxy nginx or caddy)
logins   40 wrong logins a second, of one account and of any, for --hold seconds each: pages, pings, pushes, queries and
         memory without and beside them, and what the account's owner and the audit log see
home     the home page of --hosts hosts, and the part that refreshes itself: p50/p95 of --times requests, compressed kB
parallel  20 to 500 queries at once, of one organisation and of ten; pings and one organisation's queries beside the
         slow ones of two others for --hold seconds
tenants  one tenant's pushes, queries and rules alone, and beside each kind of trouble of another, --hold seconds each
         (--only KIND,KIND)
rules    --rules rules over 1,000 series in one process: seconds and CPU of a step at which nothing changes, and of one
         at which alerts begin; beside Debian's Prometheus and vmalert with the same rules (--no-peer leaves them out)
alerts   from an accepted sample to its mail at an SMTP server with 1,000 rules: p50, p95, and beside 500 slow rules of
         another tenant
compare  a table: CPU and bytes per value, CPU of queries, and experiments of yes or no, beside Debian's
         VictoriaMetrics, InfluxDB and Prometheus (--hosts, --times)
footprint  bytes per value by table and column, of whole hours written and rolled up in memory
full     the full stack, servers and all: HTTP and AMQP through RabbitMQ and a worker into HBase, values/s, messages/s
         and CPU µs per value by process, beside OpenTSDB on the same HBase (--values, --small, --peer-values)

Where Debian's victoria-metrics is installed it gets the same bodies in the same run, and the ratio stands beside it.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from spm.limits import HOUR_MS
from spm.store.backends import open_backend
from tests.bench import full, month, names, report, tsbs
from tests.bench.agents import agents
from tests.bench.comparison import compare
from tests.bench.footprint import footprint
from tests.bench.listeners import listeners
from tests.bench.pages import home
from tests.bench.protocols import protocols
from tests.bench.rolled import compact
from tests.bench.rules.latency import alerts
from tests.bench.slow import slow
from tests.bench.slow.logins import logins
from tests.bench.slow.parallel import parallel
from tests.bench.slow.tenants import tenants
from tests.servers.product import ROOT, Served, disk_bytes, start_peer, start_product
from tests.support.fleet import STEP_MS, Fleet

DAY_NS = 86_400_000_000_000
START_MS = (time.time_ns() // DAY_NS - 14) * 24 * HOUR_MS  # at midnight; the product takes out raw samples of long ago


def main() -> None:
    """Parse the command line and run one benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("what", choices=tuple(ROOMS))
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--steps", type=int, default=4_320, help="reports of each host in large bodies (12 h)")
    parser.add_argument("--agent-steps", type=int, default=30, help="reports of each host in one-agent bodies")
    parser.add_argument("--jitter", type=int, default=0, help="ms off the grid, of compact")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--values", type=int, default=3_000_000, help="of full, in messages of 1,000")
    parser.add_argument("--small", type=int, default=60_000, help="of full: messages of 1 KB")
    parser.add_argument("--peer-values", type=int, default=500_000, help="of full: what OpenTSDB is given")
    parser.add_argument("--protocol", default="", help="of protocols: this one alone")
    parser.add_argument("--large-values", type=int, default=2_000_000, help="of protocols: in bodies of 10,000 lines")
    parser.add_argument("--agent-values", type=int, default=30_000, help="of protocols: in bodies of one agent")
    parser.add_argument("--agents", type=int, default=1_000, help="of agents")
    parser.add_argument("--rounds", type=int, default=20, help="of agents: bodies of each agent and load")
    parser.add_argument("--listeners", type=int, default=10_000, help="of listeners")
    parser.add_argument("--times", type=int, default=20, help="of tsbs: queries of each type; of home: requests")
    parser.add_argument("--only", default="", help="of tsbs, tenants: kinds with this in their name")
    parser.add_argument("--series", type=int, default=1_000_000, help="of names")
    parser.add_argument("--scale", type=int, default=1, help="of tsbs: so many times fewer hosts")
    parser.add_argument("--slow", type=int, default=1_000, help="of slow: connections of each kind")
    parser.add_argument("--hold", type=float, default=60, help="of slow, logins and parallel: seconds")
    parser.add_argument("--rules", type=int, default=10_000, help="of rules")
    parser.add_argument("--url", default="", help="of slow: a running server")
    parser.add_argument("--token", default="", help="of slow: for pushes and queries")
    parser.add_argument("--proxy", default="", help="of slow: nginx or caddy, before the server")
    options = parser.parse_args()
    ROOMS[options.what](options)


@contextmanager
def _servers(options: argparse.Namespace) -> Iterator[list[tuple[str, Served]]]:
    with tempfile.TemporaryDirectory(prefix="spm-bench-") as folder:
        servers = [("product", start_product(Path(folder) / "product"))]
        peer = None if options.no_peer else start_peer(Path(folder) / "peer")
        if peer is not None:
            servers.append(("victoria-metrics", peer))
        try:
            yield servers
        finally:
            for _, served in servers:
                served.stop()


def _push(served: Served, bodies: Iterable[bytes]) -> list[float]:
    """Push over one keep-alive connection; seconds of each request."""
    connection = served.connection()
    took = []
    for body in bodies:
        began = time.perf_counter()
        status = served.push(connection, body)
        took.append(time.perf_counter() - began)
        if status != 204:
            raise RuntimeError(f"a body was answered {status}")
    return took


def _measured(name: str, who: str, served: Served, bodies: list[bytes], values: int) -> float:
    before, began = served.cpu(), time.perf_counter()
    took = _push(served, bodies)
    wall = time.perf_counter() - began
    cpu = report.spent(before, served.cpu(), values)
    report.line(
        f"{name} {who}",
        values_per_s=values / wall,
        **{f"cpu_us[{n}]": v for n, v in cpu.items()},
        **report.quantiles(took),
        requests=len(bodies),
    )
    return cpu["all"]


def ingest(options: argparse.Namespace) -> None:
    """Line protocol to durable."""
    warm = Fleet.make(hosts=options.hosts, steps=300, start_ms=START_MS - 6 * HOUR_MS, seed=9)
    large = Fleet.make(hosts=options.hosts, steps=options.steps, start_ms=START_MS)
    few = Fleet.make(hosts=options.hosts, steps=options.agent_steps, start_ms=START_MS + 24 * HOUR_MS, seed=2)
    forms = (
        ("bodies of 10,000 lines", list(large.large_bodies()), len(large)),
        ("one-agent bodies", list(few.agent_bodies()), len(few)),
    )
    with _servers(options) as servers:
        for _, served in servers:
            _push(served, [*warm.large_bodies(), *list(warm.agent_bodies())[:200]])
        for name, bodies, values in forms:
            cpu = [_measured(name, who, served, bodies, values) for who, served in servers]
            if len(cpu) > 1:
                report.line(f"{name} ratio", cpu=cpu[0] / cpu[1])


def every_agent(options: argparse.Namespace) -> None:
    """Small bodies of many connections."""
    start_ms = time.time_ns() // 10**10 * STEP_MS - 36 * HOUR_MS  # live, as what agents send
    with _servers(options) as servers:
        agents(servers, options, start_ms)


def every_listener(options: argparse.Namespace) -> None:
    """Streams of events."""
    with _servers(argparse.Namespace(no_peer=True)) as [(_, served)]:
        listeners(served, options)


def slow_clients(options: argparse.Namespace) -> None:
    """Slow and hostile clients."""
    with tempfile.TemporaryDirectory(prefix="spm-bench-") as folder:
        slow(options, Path(folder))


def wrong_logins(options: argparse.Namespace) -> None:
    """Floods of wrong logins."""
    with tempfile.TemporaryDirectory(prefix="spm-bench-") as folder:
        logins(options, Path(folder))


def home_page(options: argparse.Namespace) -> None:
    """The home page of a large app."""
    with _servers(argparse.Namespace(no_peer=True)) as [(_, served)]:
        home(served, options)


def beside_tenants(options: argparse.Namespace) -> None:
    """Measure what a tenant notices of another one's troubles."""
    with tempfile.TemporaryDirectory(prefix="spm-bench-") as folder:
        tenants(options, Path(folder))


def parallel_queries(options: argparse.Namespace) -> None:
    """Queries at once."""
    with tempfile.TemporaryDirectory(prefix="spm-bench-") as folder:
        parallel(options, Path(folder))


def every_protocol(options: argparse.Namespace) -> None:
    """All protocols to durable."""
    with _servers(options) as servers:
        protocols(servers, options, START_MS)


def _manage(served: Served, *arguments: str) -> tuple[float, float]:
    """(wall, CPU) seconds of one `bin/manage` command on the server's data."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    environment = {**os.environ, "SPM_DATA": str(served.data)}
    subprocess.run([str(ROOT / "bin/manage"), *arguments], check=True, env=environment, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - began, cpu


def table_bytes(data: Path) -> dict[str, int]:
    """Bytes of keys and cells of each table of an embedded store."""
    backend = open_backend(f"lmdb://{data}/store")
    sizes = {}
    for table in ("chunks", "timelines", "inputs", "hours", "days", "log", "pending", "ledger", "series", "manifest"):
        rows = backend.scan(table, b"", b"\xff" * 64)
        sizes[table] = sum(len(key) + sum(map(len, cells.values())) for key, cells in rows)
    backend.close()
    return sizes


def disk(options: argparse.Namespace) -> None:
    """Roll a fleet up, on a grid and with jitter."""
    for name, jitter in (("grid", 0), ("jitter ±40 ms", 40)):
        fleet = Fleet.make(hosts=options.hosts, steps=options.steps, start_ms=START_MS, jitter_ms=jitter)
        with _servers(options) as servers:
            for who, served in servers:
                _push(served, fleet.large_bodies())
                if who == "product":
                    _compact_product(name, served, len(fleet))
                else:
                    served.stop()  # flushes what is in memory
                    report.line(f"{name} {who}", folder_bytes_per_value=disk_bytes(served.data) / len(fleet))


def _compact_product(name: str, served: Served, values: int) -> None:
    wall, cpu = _manage(served, "roll")
    report.line(f"{name} roll (Spark, with its start)", values_per_s=values / wall, cpu_us=1e6 * cpu / values)
    sizes = table_bytes(served.data)
    chunks = (sizes["chunks"] + sizes["timelines"]) / values
    report.line(f"{name} product", chunks_and_timelines_bytes_per_value=chunks, inputs=sizes["inputs"] / values)
    _manage(served, "purge", "--keep", "0")
    served.stop()
    stored_bytes = sum(table_bytes(served.data).values()) / values
    report.line(
        f"{name} product after purge",
        rows_bytes_per_value=stored_bytes,
        folder_bytes_per_value=disk_bytes(served.data / "store") / values,
    )


QUERIES = {
    "12 h, one series, max per minute": ('max_over_time(cpu_usage_user{hostname="host_7"}[1m])', 12 * 60, 60),
    "12 h, one host, ten series": (
        'max by (__name__) (max_over_time({__name__=~"cpu_usage_.*",hostname="host_7"}[1m]))',
        12 * 60,
        60,
    ),
    "1 h, all hosts, mean per minute": ("avg(avg_over_time(cpu_usage_user[1m]))", 60, 60),
    "12 h, all hosts, max per hour": ("max_over_time(cpu_usage_user[1h])", 12 * 60, 3600),
}


def query(options: argparse.Namespace) -> None:
    """Queries as a client sees them, before and after `roll`."""
    fleet = Fleet.make(hosts=options.hosts, steps=options.steps, start_ms=START_MS)
    with _servers(options) as servers:
        for _, served in servers:
            _push(served, fleet.large_bodies())
        time.sleep(2)
        medians = _ask_all("raw", servers)
        _manage(servers[0][1], "roll")
        medians |= _ask_all("rolled up", servers[:1])
        for name in QUERIES:
            if (name, "victoria-metrics", "raw") in medians:
                peer = medians[name, "victoria-metrics", "raw"]
                report.line(f"{name} ratio", p50=medians[name, "product", "rolled up"] / peer)


def _ask_all(state: str, servers: list[tuple[str, Served]]) -> dict[tuple[str, str, str], float]:
    medians = {}
    for name, (expression, minutes, step) in QUERIES.items():
        end = START_MS // 1000 + 12 * 3600
        for who, served in servers:
            connection = served.connection()
            took = []
            for _ in range(30):
                began = time.perf_counter()
                served.ask(connection, "query_range", query=expression, start=end - minutes * 60, end=end, step=step)
                took.append(time.perf_counter() - began)
            report.line(f"{name} {who} {state}", **report.quantiles(took[5:]))
            medians[name, who, state] = report.quantiles(took[5:])["p50_ms"]
    return medians


def devops(options: argparse.Namespace) -> None:
    """The suite's query types on two fleets, a run having compacted both."""
    for hosts, steps in ((100, 8_640), (4_000, 180)):
        hosts = max(10, hosts // options.scale)
        fleet, name = Fleet.make(hosts=hosts, steps=steps, start_ms=START_MS), f"{hosts} hosts"
        with _servers(options) as servers:
            for _, served in servers:
                _push(served, fleet.large_bodies())
            _manage(servers[0][1], "roll", "--local")
            time.sleep(2)
            tsbs.measure(name, fleet, START_MS, servers, options)


def tail(options: argparse.Namespace) -> None:
    """An hour of agents' requests that no run has touched."""
    start = time.time_ns() // 1_000_000 - HOUR_MS
    agents = Fleet.make(hosts=options.hosts, steps=HOUR_MS // STEP_MS, start_ms=start, jitter_ms=40)
    expression = 'cpu_usage_user{hostname="host_7"}[1h]'
    with _servers(argparse.Namespace(no_peer=True)) as [(_, served)]:
        _push(served, agents.agent_bodies())
        connection, end = served.connection(), (start + HOUR_MS + 1000) / 1000
        took = []
        for _ in range(30):
            began = time.perf_counter()
            served.ask(connection, "query", query=expression, time=end)
            took.append(time.perf_counter() - began)
            time.sleep(0.2)
        report.line("tail: 1 h of one series", first_ms=took[0] * 1e3, **report.quantiles(took[5:]))
        seen = sorted(seconds_to_visible(served, str(n)) for n in range(100))
        report.line("accepted to visible", **report.quantiles(seen), p99_ms=seen[98] * 1e3, worst_ms=seen[-1] * 1e3)


def whole_month(options: argparse.Namespace) -> None:
    """Charts of a month from what is rolled up, without the time of HTTP."""
    for name, (cold, warm) in month.run(days=30, hosts=options.hosts, step_s=300).items():
        report.line(f"30 days, {name}", cold_ms=cold, warm_ms=warm)


def seconds_to_visible(served: Served, name: str) -> float:
    """Push one sample; how long after its acceptance a query shows it."""
    connection = served.connection()
    now = time.time_ns() // 1_000_000
    if served.push(connection, f"seen,n={name} value=1 {now}\n".encode()) != 204:
        raise RuntimeError("the sample was refused")
    accepted = time.perf_counter()
    while not served.ask(connection, "query", query=f'seen{{n="{name}"}}', time=now / 1000 + 1)["result"]:
        if time.perf_counter() - accepted > 30:
            raise RuntimeError("the sample is not seen after 30 s")
        time.sleep(0.02)
    return time.perf_counter() - accepted


SMALL_BODIES = "import django; django.setup(); from tests.bench.in_process import small_bodies; small_bodies.main()"


def steps_of_small_bodies(options: argparse.Namespace) -> None:
    """The steps in a process of their own that has set up Django, as those that accept have."""
    arguments = [options.protocol, str(options.agents), str(options.series)]
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    subprocess.run([sys.executable, "-c", SMALL_BODIES, *arguments], check=True, env=environment)


JUDGING = (
    "import django; django.setup(); import sys; from tests.bench.rules import judging; judging.run(int(sys.argv[1]))"
)


def many_rules(options: argparse.Namespace) -> None:
    """Rules judged in a process of their own, then by the peers."""
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    subprocess.run([sys.executable, "-c", JUDGING, str(options.rules)], check=True, env=environment)
    if not options.no_peer:
        subprocess.run(
            [sys.executable, "-m", "tests.bench.rules.peers", str(options.rules)], check=True, env=environment
        )


ROOMS: dict[str, Callable[[argparse.Namespace], object]] = {
    "ingest": ingest,
    "agents": every_agent,
    "listeners": every_listener,
    "slow": slow_clients,
    "logins": wrong_logins,
    "home": home_page,
    "parallel": parallel_queries,
    "tenants": beside_tenants,
    "small_bodies": steps_of_small_bodies,
    "protocols": every_protocol,
    "rules": many_rules,
    "alerts": alerts,
    "compact": compact,
    "disk": disk,
    "query": query,
    "tsbs": devops,
    "tail": tail,
    "month": whole_month,
    "names": lambda options: names.run(options.series),
    "footprint": lambda options: footprint(options.hosts),
    "compare": lambda options: compare(options, START_MS),
    "full": lambda options: full.run(options.values, options.small, options.peer_values),
}


if __name__ == "__main__":
    main()
