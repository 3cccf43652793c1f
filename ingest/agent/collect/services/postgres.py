"""Collects PostgreSQL's statistics (``postgresql…``): databases, connections, the writer, replication, locks, sizes.

The driver (psycopg) is not part of the agent: without it the collector fails with the command that installs it. A login
with the role ``pg_monitor`` sees everything. One connection stays open, read-only, with a timeout on the server.
"""

import importlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ingest.agent.collect.base import Options, access_of
from ingest.agent.collect.fetch import Unreachable
from ingest.agent.lines import Point
from spm import limits

_DATABASES = f"""
select d.datname as database, numbackends, xact_commit, xact_rollback, blks_read, blks_hit, tup_returned, tup_fetched,
       tup_inserted, tup_updated, tup_deleted, conflicts, temp_files, temp_bytes, deadlocks,
       case when has_database_privilege(d.datname, 'connect') then pg_database_size(d.datname) end as size_bytes
from pg_stat_database d where d.datname is not null and d.datname not like 'template%'
order by d.datname limit {limits.AGENT_ROWS_MAX}"""
_CONNECTIONS = """
select coalesce(state, 'unknown') as state, count(*) as connections,
       coalesce(max(extract(epoch from now() - xact_start)), 0)::float8 as oldest_transaction_s
from pg_stat_activity where backend_type = 'client backend' group by 1"""
_SERVER = """
select extract(epoch from now() - pg_postmaster_start_time())::float8 as uptime_s,
       current_setting('max_connections')::int as max_connections, pg_is_in_recovery()::int as in_recovery,
       (select count(*) from pg_locks where not granted) as locks_waiting,
       case when pg_is_in_recovery() then
         coalesce(extract(epoch from now() - pg_last_xact_replay_timestamp()), 0)::float8 end as replay_lag_s"""
_REPLICAS = f"""
select coalesce(nullif(application_name, ''), host(client_addr), 'local') as replica,
       pg_wal_lsn_diff(sent_lsn, replay_lsn)::float8 as lag_bytes,
       coalesce(extract(epoch from replay_lag), 0)::float8 as lag_s
from pg_stat_replication where sent_lsn is not null limit {limits.AGENT_ROWS_MAX}"""
_WRITER = "select * from pg_stat_bgwriter"
_QUERIES = (
    ("postgresql_database", _DATABASES, "database"),
    ("postgresql_connections", _CONNECTIONS, "state"),
    ("postgresql", _SERVER, ""),
    ("postgresql_writer", _WRITER, ""),
    ("postgresql_replica", _REPLICAS, "replica"),
)
MISSING = "the driver is missing: pip install 'psycopg[binary]', or apt install python3-psycopg"


class PostgresCollector:
    """Collects one server."""

    def __init__(self, options: Options) -> None:
        self._dsn, self._access = options["dsn"], access_of(options)
        self._name = options.get("name", "")
        self._link: Any = None

    def __call__(self) -> Sequence[Point]:
        driver = _import_driver()
        try:
            if self._link is None:
                self._link = self._connect(driver)
            return [point for query in _QUERIES for point in self._points(*query)]
        except driver.Error as error:
            self._close()
            raise Unreachable(" ".join(str(error).split())[:300]) from None

    def _connect(self, driver: Any) -> Any:
        seconds = max(1, round(self._access.timeout_s))
        parameters = {
            "connect_timeout": seconds,
            "application_name": "spm-agent",
            "autocommit": True,
            "options": f"-c default_transaction_read_only=on -c statement_timeout={seconds * 1000}",
        }
        if self._access.password:
            parameters["password"] = self._access.password
        if self._access.user:
            parameters["user"] = self._access.user
        return driver.connect(self._dsn, **parameters)

    def _points(self, measurement: str, query: str, label: str) -> Sequence[Point]:
        with self._link.cursor() as cursor:
            cursor.execute(query)
            names = [column.name for column in cursor.description]
            rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        labels = {"server": self._name} if self._name else {}
        return [
            Point(measurement, _numbers(row), {**labels, label: str(row[label])} if label else labels) for row in rows
        ]

    def _close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            with suppress(Exception):  # the connection is broken; the driver may raise anything
                link.close()


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    return {k: v for k, v in row.items() if isinstance(v, int | float) and not isinstance(v, bool)}


def _import_driver() -> Any:
    try:
        return importlib.import_module("psycopg")
    except ImportError:
        raise Unreachable(MISSING) from None
