"""A new collector is one file and one registry line: the agent then collects its points, or reads its configuration."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from ingest.agent.app import collect_once
from ingest.agent.collect import registry
from ingest.agent.collect.base import ServiceKind
from ingest.agent.collect.registry import HostCollector
from ingest.agent.settings import config
from ingest.agent.settings.config import Config
from spm.clock import FakeClock

MODULE = '''
"""Collects the temperature of a room, or of the machine."""

from ingest.agent.lines import Point


def machine_points():
    return [Point("temperature", {"value": 41.5})]


class RoomCollector:
    def __init__(self, options):
        self._room = options["room"]

    def __call__(self):
        return [Point("temperature", {"value": 20.0}, {"room": self._room})]
'''


@pytest.fixture
def temperature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    (tmp_path / "temperature_collector_of_a_test.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("temperature_collector_of_a_test")


def read_config(folder: Path, text: str = "") -> Config:
    path = folder / "agent.toml"
    path.write_text(text)
    return config.read(["--config", str(path)], {"HOME": str(folder)}, need_token=False)


def test_a_new_collector_of_the_machine_needs_one_file_and_one_line(
    temperature: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = HostCollector("temperature", lambda: temperature.machine_points)
    monkeypatch.setattr(registry, "HOST_COLLECTORS", (line,))
    [(name, points, problem, _)] = collect_once(read_config(tmp_path), FakeClock(0))
    assert (name, [dict(point.fields) for point in points], problem) == ("temperature", [{"value": 41.5}], "")


def test_a_new_kind_of_service_needs_one_file_and_one_line(
    temperature: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ServiceKind("temperature", temperature.RoomCollector, {"room": str}, ("room",), "room")
    monkeypatch.setitem(registry.KINDS, line.name, line)
    monkeypatch.setattr(registry, "HOST_COLLECTORS", ())
    own = read_config(tmp_path, '[[temperature]]\nroom = "lab"\n')
    [(name, points, problem, _)] = collect_once(own, FakeClock(0))
    assert (name, points[0].labels, problem) == ("temperature:lab", {"room": "lab"}, "")


def test_names_of_collectors_are_unique() -> None:
    names = [*registry.SYSTEM, *(kind.name for kind in registry.SERVICE_KINDS), "itself"]
    assert len(set(names)) == len(names)
