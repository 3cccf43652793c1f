"""Tables of HBase made before their first use: cut into regions at every shard, with codec and block encoding.

The gateway that the product talks to (Thrift) can only make a table of one region; ``make`` asks the other one
(Thrift2), which an administrator runs for this moment only:

    python -m spm.store.backends.hbase_tables hbase://HOST:PORT/PREFIX GATEWAY2:PORT

Tables that are there stay as they are, so it may be repeated. No table has a time to live: what may go is decided by
the purge, from the manifests; a clock of HBase's must not take rows that are still named.
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
PLAIN = frozenset({"log", "chunks", "timelines", "hours", "days"})  # their values are compressed columns already
LARGE = frozenset({"log", "chunks", "timelines", "hours", "days", "dead"})  # values of up to megabytes
CODECS: Mapping[str, int] = MappingProxyType({"NONE": 2, "ZSTD": 6})
_NO_ENCODING, _FAST_DIFF, _BLOOM_ROW = 0, 4, 1

# The part of HBase's Thrift2 interface that making a table takes; numbers of fields and calls are HBase's.
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
class Shape:
    """How a table is laid out on the cluster."""

    splits: tuple[bytes, ...]  # where a region ends and the next begins
    codec: str
    encoded: bool  # keys of neighbouring rows share their beginnings: worth it where values are small


def shape_of(table: str) -> Shape:
    """The layout of a table. Pure."""
    codec = "NONE" if table in PLAIN else "ZSTD"
    return Shape(tuple(keys.split_keys(table)), codec, encoded=table not in LARGE)


def make(host: str, port: int, prefix: str, tables: Sequence[str] = tuple(keys.TABLES)) -> list[str]:
    """Make what is not there through the Thrift2 gateway; the names of the tables that were made."""
    service, timeout = _interface().THBaseService, limits.STORE_TIMEOUT_S * 1000
    try:
        with client_context(service, host, port, socket_timeout=timeout, connect_timeout=timeout) as client:
            return [table for table in tables if _make(client, prefix, table)]
    except (TException, OSError) as error:
        raise StoreUnavailable(f"HBase's Thrift2 gateway at {host}:{port}: {error}") from error


def _make(client: Any, prefix: str, table: str) -> bool:
    known = _interface()
    name = known.TTableName(ns=b"default", qualifier=f"{prefix}_{table}".encode())
    if client.tableExists(name):
        return False
    shape = shape_of(table)
    family = known.TColumnFamilyDescriptor(
        name=FAMILY,
        bloomnFilterType=_BLOOM_ROW,
        compressionType=CODECS[shape.codec],
        dataBlockEncoding=_FAST_DIFF if shape.encoded else _NO_ENCODING,
        maxVersions=1,
    )
    client.createTable(known.TTableDescriptor(tableName=name, columns=[family]), list(shape.splits) or None)
    return True


@lru_cache(maxsize=1)
def _interface() -> Any:
    return thriftpy2.load_fp(io.StringIO(_INTERFACE), "spm_hbase2_thrift")


def main(words: Sequence[str]) -> int:
    """See the module; the exit code."""
    try:
        if len(words) != 2:
            raise Refused("two addresses are needed", got=len(words), wanted="hbase://HOST:PORT/PREFIX and HOST:PORT")
        store, gateway = urlsplit(words[0]), urlsplit(f"//{words[1]}")
        prefix = store.path.strip("/") or "spm"
        made = make(gateway.hostname or "localhost", gateway.port or PORT2, prefix)
    except (Refused, StoreUnavailable) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"made {len(made)} tables, {len(keys.TABLES) - len(made)} were there: {' '.join(made)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
