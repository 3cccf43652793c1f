"""Collects Java programs with a JMX servlet (``/jmx``): HBase, Hadoop and others (``jvm…``, ``hbase…``…).

``Hadoop:service=HBase,name=RegionServer,sub=Server`` becomes the measurement ``hbase_regionserver_server``; the JVM's
own beans become ``jvm_memory``, ``jvm_threading``, ``jvm_gc`` (label ``gc``), ``jvm_memory_pool`` (label ``pool``).
Only numbers are collected. Beans of single regions, tables, users and ports are left out, because there are thousands
of them. The option ``beans`` selects others, with the syntax of the servlet's ``qry``.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from ingest.agent.collect.base import Options, access_of, numeric_fields
from ingest.agent.collect.fetch import Unreachable, fetch_json
from ingest.agent.lines import Point
from spm import limits

QUERIES = ("java.lang:*", "Hadoop:*")
_TOO_MANY = (
    "sub=Regions",
    "sub=Tables",
    "sub=TableLatencies",
    "sub=TableRequests",
    "sub=Users",
    "sub=UserAggregate",
    "RpcDetailedActivity",
    "sub=Control",
)
_JVM = {
    "Memory": "memory",
    "Threading": "threading",
    "OperatingSystem": "os",
    "ClassLoading": "classes",
    "Runtime": "runtime",
}
_JVM_NAMED = {"GarbageCollector": ("gc", "gc"), "MemoryPool": ("memory_pool", "pool")}
_DROPPED = (
    "thread_allocated",
    "peak_usage",
    "collection_usage",
    "last_gc_info",
    "usage_threshold",
    "start_time",
    "spec_",
    "object_",
)
_UNFIT = re.compile(r"[^A-Za-z0-9]+")
_PLACE = re.compile(r"-(?:/|[0-9a-f]{8}-|[A-Za-z0-9.]+-\d+$|\d+$)|ForPort\d+$")


class JmxCollector:
    """Collects one servlet."""

    def __init__(self, options: Options) -> None:
        self._url, self._access = options["url"], access_of(options)
        self._queries = tuple(options.get("beans", QUERIES))

    def __call__(self) -> Sequence[Point]:
        result: list[Point] = []
        for query in self._queries:
            answer = fetch_json(f"{self._url}?qry={quote(query, safe='*=,:')}", self._access)
            beans = answer.get("beans") if isinstance(answer, dict) else None
            if not isinstance(beans, list):
                raise Unreachable(f"{self._url} is no JMX servlet")
            result += points(beans)
        if not result:
            raise Unreachable(f"{self._url} has no bean of {', '.join(self._queries)}")
        return result


def points(beans: Sequence[Any]) -> Sequence[Point]:
    """Returns one point for each bean that has numbers."""
    bean_points = (_point(bean) for bean in beans if isinstance(bean, dict))
    return [point for point in bean_points if point is not None][: limits.AGENT_POINTS_MAX]


def _point(bean: Mapping[str, Any]) -> Point | None:
    domain, _, keys = str(bean.get("name", "")).partition(":")
    if any(part in keys for part in _TOO_MANY):
        return None
    properties = dict(pair.split("=", 1) for pair in keys.split(",") if "=" in pair)
    place = _jvm_place(properties) if domain == "java.lang" else _other_place(domain, properties)
    if place is None:
        return None
    measurement, labels = place
    attributes = {key: value for key, value in bean.items() if key not in ("name", "modelerType") and "." not in key}
    fields = {name: value for name, value in numeric_fields(attributes).items() if not name.startswith(_DROPPED)}
    return Point(measurement, fields, {**labels, **_labels(bean)}) if fields else None


def _jvm_place(properties: Mapping[str, str]) -> tuple[str, dict[str, str]] | None:
    kind = properties.get("type", "")
    if kind in _JVM:
        return f"jvm_{_JVM[kind]}", {}
    if kind in _JVM_NAMED:
        measurement, label = _JVM_NAMED[kind]
        return f"jvm_{measurement}", {label: properties.get("name", "")}
    return None


def _other_place(domain: str, properties: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Returns measurement and labels from a bean's name; a port, a folder or an id becomes the label ``of``."""
    head = [] if domain == "Hadoop" else [domain]
    parts = [*head, *(properties[key] for key in ("service", "type", "name", "sub") if key in properties)]
    name = "_".join(parts)
    place = _PLACE.search(name)
    if place is None:
        return _lower(name), {}
    return _lower(name[: place.start()]), {"of": name[place.start() :].lstrip("-")}


def _lower(name: str) -> str:
    return _UNFIT.sub("_", name).strip("_").lower()


def _labels(bean: Mapping[str, Any]) -> dict[str, str]:
    """Returns the labels of a bean. ``tag.Hostname`` and ``tag.Context`` add nothing to the host's own label."""
    label_names = {"tag.ProcessName": "process", "tag.SessionId": "session"}
    return {label: str(bean[key]) for key, label in label_names.items() if bean.get(key)}
