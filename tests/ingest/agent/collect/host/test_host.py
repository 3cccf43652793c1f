"""The collectors of the machine, on this machine and on example values."""

import pytest

from ingest.agent.collect import registry
from ingest.agent.collect.host import disks, processes
from ingest.agent.collect.host.cpu import CpuCollector
from ingest.agent.collect.host.own_metrics import Counters, SelfCollector
from ingest.agent.lines import Point, render

WANTED = {
    "mem": {"total", "available", "used", "free", "used_percent", "swap_used"},
    "load": {"load1", "load5", "load15"},
    "disk": {"total", "free", "used", "used_percent", "inodes_free"},
    "processes": {"total", "running", "sleeping", "blocked", "zombies", "threads"},
}


@pytest.fixture(scope="module")
def points() -> list[Point]:
    return [point for collector in registry.host_collectors().values() for point in collector()]


@pytest.mark.parametrize("measurement", sorted(WANTED))
def test_this_machine_shows_its_fields(points: list[Point], measurement: str) -> None:
    shown = [point for point in points if point.measurement == measurement]
    assert shown
    assert all(point.fields.keys() >= WANTED[measurement] for point in shown)


def test_the_root_file_system_is_among_the_disks(points: list[Point]) -> None:
    paths = [point.labels["path"] for point in points if point.measurement == "disk"]
    assert "/" in paths
    assert len(set(paths)) == len(paths)


def test_everything_this_machine_shows_can_be_written(points: list[Point]) -> None:
    lines = render(points, labels={"host": "h"}, at_ms=1).decode().split("\n")
    assert len(lines) == len(points)
    assert all(line.endswith(" 1") for line in lines)


def test_cpu_percentages_are_shares_of_the_time_between_two_collections() -> None:
    readings = iter([{"user": 10.0, "idle": 90.0}, {"user": 13.0, "idle": 95.0, "iowait": 2.0}])
    (point,) = CpuCollector(lambda: next(readings))()
    assert point.fields["usage_user"] == 30.0
    assert point.fields["usage_idle"] == 50.0
    assert point.fields["usage_total"] == 30.0


def test_a_cpu_counter_that_goes_backwards_counts_as_nothing() -> None:
    readings = iter([{"user": 10.0, "iowait": 5.0}, {"user": 20.0, "iowait": 4.0}])
    (point,) = CpuCollector(lambda: next(readings))()
    assert point.fields["usage_user"] == 100.0
    assert point.fields["usage_iowait"] == 0.0


def test_no_time_between_two_collections_is_no_point() -> None:
    assert CpuCollector(lambda: {"user": 1.0})() == []


def test_a_device_is_reported_once_at_its_shortest_path() -> None:
    paths = disks.choose_mounts(
        [("/dev/a", "/usr/lib"), ("/dev/a", "/usr"), ("/dev/b", "/"), ("/dev/c", "/no/such/folder")]
    )
    assert paths == {"/dev/a": "/usr", "/dev/b": "/"}


def test_the_root_is_reported_if_there_is_no_partition() -> None:
    assert disks.choose_mounts([]) == {"rootfs": "/"}


def test_processes_are_counted_by_state() -> None:
    point = processes.count_states([("R", 1), ("S", 4), ("I", 1), ("D", 1), ("Z", 0), ("T", 1)])
    assert point.fields == {
        "total": 6,
        "threads": 8,
        "running": 1,
        "sleeping": 2,
        "blocked": 1,
        "zombies": 1,
        "stopped": 1,
    }


def test_both_ways_of_counting_processes_agree() -> None:
    direct = processes.count_states((each.state, each.threads) for each in processes.read_proc()).fields["total"]
    slow = processes.count_states(processes._read_psutil()).fields["total"]
    assert abs(direct - slow) <= max(5, 0.1 * slow)


def test_the_agent_shows_what_it_costs() -> None:
    counters = Counters()
    counters.sent = 3
    (point,) = SelfCollector(counters)()
    assert point.fields["sent"] == 3
    assert 0 < point.fields["rss_bytes"] < 2**31
    assert point.fields["cpu_seconds"] > 0
