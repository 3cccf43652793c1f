"""Collectors of services: recorded answers of real programs are read; other answers are rejected with a reason."""

import json
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ingest.agent.collect.fetch import Access, Unreachable, fetch
from ingest.agent.collect.host import containers
from ingest.agent.collect.host.processes import ProcessStat, program_points
from ingest.agent.collect.line_protocol import read_line
from ingest.agent.collect.registry import KINDS
from ingest.agent.collect.services.command import nagios_points, run_command
from ingest.agent.collect.services.jmx import points as jmx_points
from ingest.agent.collect.services.solr import points as solr_points
from ingest.agent.lines import Point
from spm import limits
from spm.errors import Refused
from tests.ingest.agent.services import RECORDED, http, listening

INFO = (RECORDED / "redis-7.0-info.txt").read_bytes()
STUB = (
    b"Active connections: 291 \nserver accepts handled requests\n 16630948 16630946 31070465 \n"
    b"Reading: 6 Writing: 179 Waiting: 106 \n"
)
OVERVIEW = {
    "cluster_name": "rabbit@web-1",
    "message_stats": {"publish": 500, "publish_details": {"rate": 0.0}, "ack": 490, "deliver_get": 495},
    "queue_totals": {"messages": 12, "messages_ready": 10, "messages_unacknowledged": 2},
    "object_totals": {"connections": 3, "channels": 4, "exchanges": 8, "queues": 2, "consumers": 5},
}
NODE = {"name": "rabbit@web-1", "running": True, "mem_alarm": False, "disk_free_alarm": False, "mem_used": 1,
        "mem_limit": 4_000_000_000, "fd_used": 40, "fd_total": 1024, "run_queue": 1}  # fmt: skip
QUEUE = {"name": "work", "vhost": "/", "type": "quorum", "messages": 12, "messages_ready": 10, "consumers": 5,
         "messages_unacknowledged": 2, "memory": 143_000, "message_stats": {"publish": 500, "ack": 490}}  # fmt: skip
HEALTH = {"cluster_name": "logs", "status": "yellow", "timed_out": False, "number_of_nodes": 1, "active_shards": 7,
          "unassigned_shards": 2, "active_shards_percent_as_number": 77.7}  # fmt: skip
NODES = {"nodes": {"Xy1": {
    "name": "es-1", "indices": {"docs": {"count": 1200, "deleted": 3}, "search": {"query_total": 55}},
    "jvm": {"mem": {"heap_used_percent": 41}, "gc": {"collectors": {"young": {"collection_count": 9}}}},
    "thread_pool": {"write": {"queue": 4, "rejected": 1}}, "os": {"cpu": {"percent": 7}},
}}}  # fmt: skip
SOLR: dict[str, Any] = {"responseHeader": {"status": 0}, "metrics": {
    "solr.jvm": {"memory.heap.used": 123_456, "gc.G1-Young-Generation.count": 12},
    "solr.core.films": {"INDEX.sizeInBytes": 9_000, "SEARCHER.searcher.numDocs": 1_100,
                        "QUERY./select.requestTimes": {"count": 77, "p95_ms": 3.25},
                        "CACHE.searcher.filterCache": {"hits": 5, "hitratio": 0.5}},
}}  # fmt: skip
METRICS = b"""# HELP http_requests_total Requests.
# TYPE http_requests_total counter
http_requests_total{method="post",path="/a \\"b\\" \\\\ \\n"} 1027 1700000000000
http_requests_total{method="get"} 3
temp_celsius -12.5
latency_bucket{le="+Inf"} 7 # {trace_id="x"} 0.5
broken{a="b" 1
nan_value NaN
"""


def collect(kind: str, **options: Any) -> Sequence[Point]:
    """Returns the points of one call of a collector of this kind."""
    return KINDS[kind].make(KINDS[kind].read(options))()


def values(points: Sequence[Point]) -> dict[str, dict[str, float]]:
    """Returns the fields of the first point of each measurement."""
    result: dict[str, dict[str, float]] = {}
    for point in points:
        result.setdefault(point.measurement, dict(point.fields))
    return result


# --- Redis ------------------------------------------------------------------------------------------------------------


def redis_of(*answers: bytes, heard: list[bytes] | None = None) -> Any:
    """Runs a server that sends these bytes, whatever the request."""

    def serve(link: socket.socket) -> None:
        message = link.recv(65_536)
        if heard is not None:
            heard.append(message)
        link.sendall(b"".join(answers))

    return listening(serve)


def bulk(body: bytes) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(body), body)


def test_redis_shows_what_info_says() -> None:
    with redis_of(bulk(INFO)) as port:
        points = collect("redis", address=f"127.0.0.1:{port}")
    assert points[0].fields.keys() >= {"connected_clients", "used_memory", "total_commands_processed", "keyspace_hits"}
    assert points[0].fields["maxclients"] == 10_000
    assert points[0].labels["role"] == "master"
    [keys] = [point for point in points if point.measurement == "redis_keyspace"]
    assert (keys.labels["db"], keys.fields["keys"]) == ("db0", 1)


def test_redis_gets_the_password_first() -> None:
    heard: list[bytes] = []
    with redis_of(b"+OK\r\n", bulk(INFO), heard=heard) as port:
        collect("redis", address=f"127.0.0.1:{port}", user="agent", password="p w")
    assert heard[0].startswith(b"*3\r\n$4\r\nAUTH\r\n$5\r\nagent\r\n$3\r\np w\r\n*1\r\n$4\r\nINFO\r\n")


@pytest.mark.parametrize(
    ("answers", "password", "message"),
    [
        ((b"-NOAUTH Authentication required.\r\n",), "", "NOAUTH"),
        ((b"-WRONGPASS invalid\r\n", b"-NOAUTH\r\n"), "secret", "does not accept the password"),
        ((b"HTTP/1.1 400 Bad Request\r\n\r\n",), "", "does not answer INFO"),
        ((b"$99\r\nshort",), "", "closed the connection"),
        ((b"$99999999999\r\n",), "", "larger"),
        ((b"$-1\r\n",), "", "does not answer"),
        ((bulk(b"\xff\xfe garbage"),), "", "without a known number"),
        ((b"",), "", "nothing"),
    ],
)
def test_a_server_that_is_no_redis_is_reported(answers: tuple[bytes, ...], password: str, message: str) -> None:
    with redis_of(*answers) as port, pytest.raises(Unreachable, match=message) as caught:
        collect("redis", address=f"127.0.0.1:{port}", password=password)
    assert "secret" not in str(caught.value)


@pytest.mark.timed
def test_a_service_that_hangs_is_given_up() -> None:
    began = time.monotonic()
    with listening(lambda link: time.sleep(1)) as port, pytest.raises(Unreachable):
        collect("redis", address=f"127.0.0.1:{port}", timeout_s=0.1)
    assert time.monotonic() - began < 5


# --- over HTTP --------------------------------------------------------------------------------------------------------


def test_nginx_shows_its_seven_numbers() -> None:
    with http({"/stub_status": STUB}) as (url, _):
        [point] = collect("nginx", url=f"{url}/stub_status")
    assert list(point.fields.values()) == [291, 16630948, 16630946, 31070465, 6, 179, 106]


def test_rabbitmq_shows_totals_nodes_and_queues_with_a_login() -> None:
    answers = {"/api/overview": OVERVIEW, "/api/nodes": [NODE], "/api/queues": {"items": [QUEUE], "total_count": 1}}
    with http({path: json.dumps(body).encode() for path, body in answers.items()}) as (url, requests):
        points = collect("rabbitmq", url=url, user="monitor", password="pw")
    result = values(points)
    assert result["rabbitmq"]["messages_ready"] == 10
    assert result["rabbitmq"]["publish_messages"] == 500
    assert (result["rabbitmq_node"]["running"], result["rabbitmq_node"]["mem_alarm"]) == (1, 0)
    assert result["rabbitmq_queue"]["ack_messages"] == 490
    assert {headers["Authorization"] for _, headers in requests} == {"Basic bW9uaXRvcjpwdw=="}


def test_elasticsearch_shows_health_and_its_own_node() -> None:
    answers = {"/_cluster/health": json.dumps(HEALTH).encode(), "/_nodes/_local/stats": json.dumps(NODES).encode()}
    with http(answers) as (url, _):
        points = collect("elasticsearch", url=url)
    result = values(points)
    assert (result["elasticsearch"]["status"], result["elasticsearch"]["unassigned_shards"]) == (1, 2)
    assert result["elasticsearch_indices"]["docs_count"] == 1200
    assert result["elasticsearch_jvm"]["gc_collectors_young_collection_count"] == 9
    assert [p.labels["pool"] for p in points if p.measurement == "elasticsearch_pool"] == ["write"]


def test_solr_shows_its_jvm_and_each_core() -> None:
    jvm, core = solr_points(SOLR, "u")
    assert jvm.fields == {"memory_heap_used": 123_456, "gc_g1_young_generation_count": 12}
    assert core.labels["core"] == "films"
    assert core.fields["query_select_request_times_p95_ms"] == 3.25
    assert core.fields["searcher_filter_cache_hits"] == 5


def test_solr_of_older_versions_lists_names_and_values_in_turn() -> None:
    turned = {"metrics": [part for pair in SOLR["metrics"].items() for part in pair]}
    assert solr_points(turned, "u") == solr_points(SOLR, "u")


def test_jmx_of_a_datanode_is_read_without_beans_by_the_thousand() -> None:
    points = jmx_points(json.loads((RECORDED / "hadoop-3-datanode-jmx.json").read_bytes())["beans"])
    result = values(points)
    assert result["jvm_memory"]["heap_memory_usage_used"] > 0
    assert result["jvm_threading"]["thread_count"] > 10
    assert result["jvm_gc"]["collection_count"] >= 0
    assert result["datanode_jvmmetrics"]["mem_heap_used_m"] > 0
    assert [point.labels["gc"] for point in points if point.measurement == "jvm_gc"] == ["Copy"]
    pools = {point.labels["pool"] for point in points if point.measurement == "jvm_memory_pool"}
    assert pools >= {"Survivor Space", "Metaspace", "CodeCache"}
    volumes = [point for point in points if point.measurement == "datanode_datanodevolume"]
    assert [point.labels["of"] for point in volumes] == ["/data/datanode"]
    assert not [point for point in points if "detailed" in point.measurement]


@pytest.mark.parametrize(
    ("keys", "measurement"),
    [
        ("service=HBase,name=RegionServer,sub=Server", "hbase_regionserver_server"),
        ("service=HBase,name=Master,sub=AssignmentManager", "hbase_master_assignmentmanager"),
        ("service=RegionServer,name=RpcActivityForPort16020", "regionserver_rpcactivity"),
        ("service=HBase,name=RegionServer,sub=Regions", None),
        ("service=HBase,name=RegionServer,sub=TableLatencies", None),
    ],
)
def test_beans_of_hbase_are_named_after_themselves(keys: str, measurement: str | None) -> None:
    points = jmx_points([{"name": f"Hadoop:{keys}", "modelerType": "x", "tag.Hostname": "h", "readRequestCount": 7}])
    expected = [(measurement, {"read_request_count": 7})] if measurement else []
    assert [(point.measurement, point.fields) for point in points] == expected


def test_an_exporter_is_read_under_its_own_names() -> None:
    with http({"/metrics": METRICS}) as (url, _):
        points = collect("prometheus", url=f"{url}/metrics", name="shop", drop=["nan"])
    first, second, third, bucket, bad = points
    labels = {"method": "post", "path": '/a "b" \\ \n', "instance": "shop"}
    assert first == Point("http_requests_total", {"value": 1027.0}, labels, 1_700_000_000_000)
    assert (second.at_ms, third.fields) == (None, {"value": -12.5})
    assert (bucket.labels["le"], bucket.fields) == ("+Inf", {"value": 7.0})
    assert bad.fields == {"lines_bad": 1}


HTTP_KINDS = {"nginx": "/x", "rabbitmq": "", "elasticsearch": "", "solr": "", "jmx": "/jmx", "prometheus": "/metrics"}
GARBAGE = [
    b"", b"<html>It works!</html>", b"[]", b"{}", b"null", b'{"beans": 3}', b'{"metrics": 1}', b"\xff\xfe\x00",
    b"[" * 9_999,
]  # fmt: skip


@pytest.mark.parametrize("kind", HTTP_KINDS)
@pytest.mark.parametrize("body", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_from_a_service_is_an_error_and_no_crash(kind: str, body: bytes) -> None:
    paths = ("/x", "/jmx", "/metrics", "/api/overview", "/api/nodes", "/api/queues", "/_cluster/health",
             "/admin/metrics", "/_nodes/_local/stats")  # fmt: skip
    with http(dict.fromkeys(paths, body)) as (url, _):
        points: Sequence[Point] = []
        with suppress(Unreachable):
            points = collect(kind, url=url + HTTP_KINDS[kind])
    assert not points


@pytest.mark.parametrize(("status", "message"), [(401, "HTTP 401"), (302, "HTTP 302"), (500, "HTTP 500")])
def test_a_rejection_by_a_service_is_reported_without_its_password(status: int, message: str) -> None:
    with http({"/x": status}) as (url, _), pytest.raises(Unreachable, match=message) as caught:
        collect("nginx", url=f"{url}/x", user="u", password="geheim")
    assert "geheim" not in str(caught.value)


def test_an_answer_too_large_is_rejected() -> None:
    with http({"/x": b"x" * 10_000}) as (url, _), pytest.raises(Unreachable, match="larger than 9,999"):
        fetch(f"{url}/x", Access(bytes_max=9_999))


@pytest.mark.timed
def test_a_slow_answer_is_given_up() -> None:
    def drip(link: socket.socket) -> None:
        link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        try:
            for _ in range(100):
                link.sendall(b"x")
                time.sleep(0.02)
        except OSError:
            return

    began = time.monotonic()
    with listening(drip) as port, pytest.raises(Unreachable, match="took longer"):
        fetch(f"http://127.0.0.1:{port}/", Access(timeout_s=0.2))
    assert time.monotonic() - began < 1.5


# --- commands ---------------------------------------------------------------------------------------------------------


def python(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


def test_the_lines_of_a_command_are_read_and_bad_ones_counted() -> None:
    points = collect("command", name="c", run=python("print('x,a=b v=1,w=2i 1700000000\\njunk')"))
    assert points[0] == Point("x", {"v": 1.0, "w": 2}, {"a": "b"}, 1_700_000_000_000)
    assert points[1].fields == {"lines_bad": 1}


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import sys; sys.exit('no disk')", "exit code 1: no disk"),
        ("print('what')", "no line protocol"),
        ("print('x' * 2_000_000)", "printed more than"),
        ("import time; time.sleep(60)", "longer than 0.5 s"),
    ],
)
def test_a_command_that_fails_is_reported(code: str, message: str) -> None:
    with pytest.raises(Unreachable, match=message):
        collect("command", name="c", run=python(code), timeout_s=0.5 if "60" in code else 10.0)


def test_a_missing_program_is_reported() -> None:
    with pytest.raises(Unreachable, match="cannot run /no/such"):
        collect("command", name="c", run=["/no/such/program"])


def test_a_commands_children_end_with_it(tmp_path: Path) -> None:
    mark = tmp_path / "alive"
    script = f"(while :; do touch {mark}; sleep 0.05; done) & sleep 30"
    with pytest.raises(Unreachable, match="killed"):
        run_command(["sh", "-c", script], 0.3)
    time.sleep(0.1)
    mark.unlink(missing_ok=True)
    time.sleep(0.3)
    assert not mark.exists()


def test_a_command_sees_no_token_of_the_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPM_AGENT_TOKEN", "secret")
    assert run_command(python("import os; print(os.environ.get('SPM_AGENT_TOKEN'))"), 10)[1] == "None\n"


@pytest.mark.parametrize(
    ("code", "output", "state", "numbers"),
    [
        (0, "OK - load average: 0.1|load1=0.100;5.000;10.000;0; load5=1e-2", 0, {"load1": 0.1, "load5": 0.01}),
        (2, "CRITICAL|'disk /'=91%;80;90 time=0.003s", 2, {"disk /": 91.0, "time": 0.003}),
        (1, "WARNING no numbers", 1, {}),
        (127, "", 3, {}),
        (0, "OK|a=1\nlong output\nmore|b=2", 0, {"a": 1.0, "b": 2.0}),
        (0, "OK|a=U b=1.2.3", 0, {}),
    ],
)
def test_a_check_has_its_state_and_its_numbers(code: int, output: str, state: int, numbers: dict[str, float]) -> None:
    first, *rest = nagios_points("c", code, output)
    assert first.fields == {"state": state}
    assert {point.labels["label"]: point.fields["value"] for point in rest} == numbers


def test_a_check_may_run_less_often_than_the_agent_collects() -> None:
    collect = KINDS["command"].make({"name": "c", "run": python("print('x v=1')"), "every_s": 60.0})
    assert [len(collect()), len(collect())] == [1, 0]


@pytest.mark.parametrize(
    ("line", "point"),
    [
        (r"a\ b,c\,d=e\=f g=t", Point("a b", {"g": 1}, {"c,d": "e=f"})),
        ('m f="text, with = all",g=2', Point("m", {"g": 2.0})),
        ("m f=1 1700000000123456789", Point("m", {"f": 1.0}, {}, 1_700_000_000_123)),
        ("m f=1 1700000000123", Point("m", {"f": 1.0}, {}, 1_700_000_000_123)),
        ("m f=1 -5", Point("m", {"f": 1.0}, {}, -5_000)),
        ('m f="only text"', None), ("m", None), ("m f", None), ("m f=", None), (",a=b f=1", None), ("m f=1 2 3", None),
        ("m f=1_0", None), ("m f=1,", Point("m", {"f": 1.0})), ("m f=0x1", None), ("m f=1 1e3", None),
    ],
)  # fmt: skip
def test_lines_are_read_as_line_protocol(line: str, point: Point | None) -> None:
    assert read_line(line) == point


# --- PostgreSQL, containers, programs ---------------------------------------------------------------------------------


def test_without_its_driver_postgresql_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(Unreachable, match="pip install 'psycopg"):
        collect("postgres", dsn="host=127.0.0.1")


def test_a_missing_postgresql_is_reported() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(Unreachable, match="refused"):
        collect("postgres", dsn="host=127.0.0.1 port=1 dbname=x", password="geheim")


def cgroup(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


STATS = {
    "cpu__stat": "usage_usec 1000\nuser_usec 600\nsystem_usec 400\nnr_periods 0\nnr_throttled 2\nthrottled_usec 30\n",
    "memory__current": "5000\n", "memory__max": "max\n", "memory__stat": "anon 3000\nfile 2000\ninactive_file 1500\n",
    "memory__events": "low 0\noom 1\noom_kill 1\n", "pids__current": "4\n", "pids__max": "100\n",
    "io__stat": "8:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n253:0 rbytes=5 wbytes=0 rios=1 wios=0\n",
}  # fmt: skip
ID = "0123456789abcdef" * 4


def test_containers_are_found_by_their_cgroups(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    cgroup(root, cgroup__controllers="cpu memory")
    pod = "kubepods-burstable-pod12345678_1234_1234_1234_123456789abc.slice"
    cgroup(root / "system.slice" / f"docker-{ID}.scope", **STATS)
    cgroup(root / "system.slice" / f"docker-{ID}.scope" / f"docker-{'f' * 64}.scope", **STATS)  # one in another
    cgroup(root / "kubepods.slice" / "kubepods-burstable.slice" / pod / f"cri-containerd-{'a' * 64}.scope", **STATS)
    cgroup(root / "system.slice" / "ssh.service", **STATS)
    docker = tmp_path / "docker"
    cgroup(docker / ID, config__v2__json='{"Name": "/shop"}')
    points = containers.ContainerCollector(root, docker)()
    assert {(p.labels["runtime"], p.labels["name"], p.labels["pod"]) for p in points} == {
        ("docker", "shop", ""), ("cri-containerd", "", "12345678-1234-1234-1234-123456789abc"),
    }  # fmt: skip
    assert points[0].fields == {
        "cpu_usec": 1000, "cpu_user_usec": 600, "cpu_system_usec": 400, "cpu_throttled": 2, "cpu_throttled_usec": 30,
        "memory_bytes": 5000, "memory_working_bytes": 3500, "memory_anon_bytes": 3000, "memory_file_bytes": 2000,
        "oom_kills": 1, "processes": 4, "processes_max": 100, "read_bytes": 15, "write_bytes": 20, "reads": 2,
        "writes": 2,
    }  # fmt: skip


def test_a_host_without_cgroup_v2_is_reported(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="no cgroup v2"):
        containers.ContainerCollector(tmp_path)()


def test_programs_that_use_most_are_reported_with_their_usage_since_the_last_call() -> None:
    result = [
        ProcessStat(1, "java", "S", 9, 500, 100),
        ProcessStat(2, "java", "S", 9, 50, 100),
        ProcessStat(3, "sh", "S", 1, 7, 1),
    ]
    points = program_points(result, {1: 300, 3: 7})
    assert [(p.labels["program"], p.fields["processes"]) for p in points] == [("java", 2), ("sh", 1)]
    assert points[0].fields["cpu_seconds_used"] == pytest.approx(250 / 100, rel=0.6)
    assert points[1].fields["cpu_seconds_used"] == 0


def test_the_first_collection_of_programs_has_no_usage() -> None:
    assert [p.fields["cpu_seconds_used"] for p in program_points([ProcessStat(1, "java", "S", 9, 500, 100)], {})] == [0]


def test_programs_have_a_bound() -> None:
    many = [ProcessStat(n, f"p{n}", "S", 1, n, n) for n in range(200)]
    assert len(program_points(many, {0: 0})) <= 2 * limits.AGENT_PROGRAMS_MAX


# --- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("redis", {"adress": "x"}, "Did you mean address?"),
        ("redis", {"address": 5}, "a text"),
        ("redis", {"tls": "yes"}, "true or false"),
        ("nginx", {}, "lacks url"),
        ("prometheus", {"url": "x", "keep": "up"}, "a list of texts"),
        ("prometheus", {"url": "x", "tags": {"a": 1}}, "no text"),
        ("command", {"name": "c", "run": []}, "lacks run"),
        ("command", {"name": "c", "run": ["x"], "format": "json"}, "lines or nagios"),
        ("command", {"name": "c", "run": ["x"], "timeout_s": 0}, "above 0, up to 300"),
        ("command", {"name": "c", "run": ["x"], "timeout_s": 301}, "up to 300"),
        ("redis", {"password_file": "/no/such/file"}, "cannot be read"),
        ("redis", [1], "no table"),
    ],
)
def test_a_wrong_option_of_a_service_is_reported_at_the_start(kind: str, options: Any, message: str) -> None:
    with pytest.raises(Refused, match=message):
        KINDS[kind].read(options)
