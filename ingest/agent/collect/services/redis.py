"""Collects Redis and compatible servers (Valkey, KeyDB) with ``INFO`` over a socket (``redis``, ``redis_keyspace``).

It needs no client library: there are two commands and one bulk answer. A password is sent first, with ``AUTH``.
"""

from collections.abc import Iterable, Mapping, Sequence

from ingest.agent.collect.base import Options, access_of
from ingest.agent.collect.fetch import Access, Unreachable, open_socket
from ingest.agent.lines import Point

PORT = 6379
_WANTED = (
    "uptime_in_seconds",
    "connected_clients",
    "blocked_clients",
    "maxclients",
    "used_memory",
    "used_memory_rss",
    "used_memory_peak",
    "maxmemory",
    "mem_fragmentation_ratio",
    "rdb_changes_since_last_save",
    "rdb_last_save_time",
    "aof_enabled",
    "total_connections_received",
    "total_commands_processed",
    "instantaneous_ops_per_sec",
    "total_net_input_bytes",
    "total_net_output_bytes",
    "rejected_connections",
    "expired_keys",
    "evicted_keys",
    "keyspace_hits",
    "keyspace_misses",
    "pubsub_channels",
    "connected_slaves",
    "master_repl_offset",
    "slave_repl_offset",
    "master_last_io_seconds_ago",
    "used_cpu_sys",
    "used_cpu_user",
    "loading",
    "tracking_clients",
)
_LINE_BYTES = 4_096


class RedisCollector:
    """Collects one server."""

    def __init__(self, options: Options) -> None:
        self._address = options.get("address", f"127.0.0.1:{PORT}")
        self._tls, self._access = bool(options.get("tls")), access_of(options)

    def __call__(self) -> Sequence[Point]:
        return points(self._info().decode(errors="replace"), self._address)

    def _info(self) -> bytes:
        access = self._access
        link = open_socket(self._address, PORT, access, tls=self._tls)
        try:
            with link, link.makefile("rwb") as stream:
                if access.password:
                    user = [access.user] if access.user else []
                    stream.write(encode_command("AUTH", *user, access.password))
                stream.write(encode_command("INFO"))
                stream.flush()
                if access.password and not (answer := stream.readline(_LINE_BYTES)).startswith(b"+OK"):
                    raise Unreachable(f"{self._address} does not accept the password: {_plain(answer)}")
                return _bulk(stream.readline(_LINE_BYTES), stream.read, self._address, access)
        except OSError as error:
            raise Unreachable(f"{self._address}: {error}") from None


def encode_command(*arguments: str) -> bytes:
    """Returns a command in the protocol of Redis."""
    raw = [argument.encode() for argument in arguments]
    return b"*%d\r\n" % len(raw) + b"".join(b"$%d\r\n%s\r\n" % (len(argument), argument) for argument in raw)


def points(info: str, address: str) -> Sequence[Point]:
    """Returns the numbers of ``INFO``: one point for the server, one for each database."""
    pairs = dict(line.split(":", 1) for line in info.splitlines() if ":" in line and not line.startswith("#"))
    labels = {"server": address, "role": pairs.get("role", "")}
    fields = dict(_numbers((name, pairs[name]) for name in _WANTED if name in pairs))
    if not fields:
        raise Unreachable(f"{address} answered INFO without a known number")
    if "master_link_status" in pairs:
        fields["master_link_up"] = int(pairs["master_link_status"] == "up")
    databases = [(name, text) for name, text in pairs.items() if name[:2] == "db" and name[2:].isdigit()]
    result = [Point("redis", fields, labels)]
    for name, text in databases:
        result.append(Point("redis_keyspace", _keyspace(text), {"server": address, "db": name}))
    return result


def _keyspace(text: str) -> Mapping[str, float]:
    """Returns the numbers of ``keys=1,expires=0,avg_ttl=0``."""
    return dict(_numbers(part.split("=", 1) for part in text.split(",") if "=" in part))


def _numbers(pairs: Iterable[Sequence[str]]) -> Iterable[tuple[str, float]]:
    for name, text in pairs:
        try:
            yield name, float(text) if "." in text else int(text)
        except ValueError:
            continue


def _bulk(head: bytes, read: object, address: str, access: Access) -> bytes:
    if not head.startswith(b"$") or not head[1:].strip().isdigit():
        raise Unreachable(f"{address} does not answer INFO: {_plain(head)}")
    length = int(head[1:])
    if length > access.bytes_max:
        raise Unreachable(f"{address}: INFO is larger than {access.bytes_max:,} bytes")
    raw: bytes = read(length)  # type: ignore[operator]  # of a socket's file
    if len(raw) < length:
        raise Unreachable(f"{address} closed the connection in the middle of INFO")
    return raw


def _plain(raw: bytes) -> str:
    return raw[:100].decode(errors="replace").strip() or "nothing"
