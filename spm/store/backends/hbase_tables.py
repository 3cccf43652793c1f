"""Creates HBase's tables before their first use: split into regions at every shard, with codec and block encoding.

The Thrift gateway, which the product uses, can only create tables with one region. ``create_tables`` uses the Thrift2
gateway, which an administrator runs for this purpose only:

    python -m spm.store.backends.hbase_tables hbase://HOST:PORT/PREFIX GATEWAY2:PORT

Existing tables stay as they are, so the command may be repeated. No table has a time to live: purges decide by the
manifests which rows are deleted, and a clock of HBase's must not delete rows that are still named.
"""

import io
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import thriftpy2
from thriftpy2.rpc import client_context
from thriftpy2.thrift import TException

from spm import limits
from spm.errors import Refused, StoreUnavailable
from spm.store import keys

FAMILY = b"d"
PORT2 = 9095
COMPRESSED = frozenset({"log", "chunks", "timelines", "hours", "days"})  # their values are compressed columns already
LARGE = frozenset({"log", "chunks", "timelines", "hours", "days", "dead"})  # values of up to megabytes
CODECS: Mapping[str, int] = MappingProxyType({"NONE": 2, "ZSTD": 6})
_NO_ENCODING, _FAST_DIFF, _BLOOM_ROW = 0, 4, 1

# The part of HBase's Thrift2 interface that creates tables; numbers of fields and calls are HBase's.
_INTERFACE = """
exception TIOError { 1: optional string message, 2: optional bool canRetry }
struct TTableName { 1: optional binary ns, 2: required binary qualifier }
struct TColumnFamilyDescriptor {
  1: required binary name, 5: optional i32 bloomnFilterType, 6: optional i32 compressionType,
  8: optional i32 dataBlockEncoding, 10: optional i32 maxVersions
}
struct TTableDescriptor { 1: required TTableName tableName, 2: optional list<TColumnFamilyDescriptor> columns }
service THBaseService {
  bool tableExists(1: required TTableName tableName) throws (1: TIOError io)
  void createTable(1: required TTableDescriptor desc, 2: optional list<binary> splitKeys) throws (1: TIOError io)
}
"""


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The layout of a table on the cluster."""

    splits: tuple[bytes, ...]  # the first keys of all regions but the first
    codec: str
    encoded: bool  # neighbouring keys store their common prefix once, which saves space where values are small


def layout_of(table: str) -> TableLayout:
    """The layout of a table. Pure."""
    codec = "NONE" if table in COMPRESSED else "ZSTD"
    return TableLayout(tuple(keys.split_keys(table)), codec, encoded=table not in LARGE)


def create_tables(host: str, port: int, prefix: str, tables: Sequence[str] = tuple(keys.TABLES)) -> list[str]:
    """Create the missing tables through the Thrift2 gateway; return their names."""
    service, timeout = _interface().THBaseService, limits.STORE_TIMEOUT_S * 1000
    try:
        with client_context(service, host, port, socket_timeout=timeout, connect_timeout=timeout) as client:
            return [table for table in tables if _create_table(client, prefix, table)]
    except (TException, OSError) as error:
        raise StoreUnavailable(f"HBase's Thrift2 gateway at {host}:{port}: {error}") from error


def _create_table(client: Any, prefix: str, table: str) -> bool:
    interface = _interface()
    name = interface.TTableName(ns=b"default", qualifier=f"{prefix}_{table}".encode())
    if client.tableExists(name):
        return False
    layout = layout_of(table)
    family = interface.TColumnFamilyDescriptor(
        name=FAMILY,
        bloomnFilterType=_BLOOM_ROW,
        compressionType=CODECS[layout.codec],
        dataBlockEncoding=_FAST_DIFF if layout.encoded else _NO_ENCODING,
        maxVersions=1,
    )
    client.createTable(interface.TTableDescriptor(tableName=name, columns=[family]), list(layout.splits) or None)
    return True


@lru_cache(maxsize=1)
def _interface() -> Any:
    return thriftpy2.load_fp(io.StringIO(_INTERFACE), "spm_hbase2_thrift")


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    try:
        if len(arguments) != 2:
            raise Refused(
                "two addresses are needed", got=len(arguments), wanted="hbase://HOST:PORT/PREFIX and HOST:PORT"
            )
        store, gateway = urlsplit(arguments[0]), urlsplit(f"//{arguments[1]}")
        prefix = store.path.strip("/") or "spm"
        created = create_tables(gateway.hostname or "localhost", gateway.port or PORT2, prefix)
    except (Refused, StoreUnavailable) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"created {len(created)} tables, {len(keys.TABLES) - len(created)} existed: {' '.join(created)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
