"""Looks at what is new since the last look: a fixed number of queries for all apps together, in one thread.

| event | from | says |
|---|---|---|
| ``data`` | pending records of the store | samples that were accepted up to a time are visible |
| ``alert`` | rows of ``AlertEvent`` | a series of a rule changed its state |
| ``run`` | rows of ``RunDay``, entries of the audit log | a run, a roll back, a retraction or its undo changed charts |
| ``source`` | rows of ``Source`` | a source sent for the first time |
| ``event`` | ``StreamHead`` | the organisation's stream of events has come to a position |

Each of these has numbers that grow, so "what is new" costs the same, however much there is. That a source is overdue
has none: a rule on ``spm_source_up`` makes an alert of it. Enter by ``ChangeWatch``.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from django.db.models import Model, Q

from alerts.models import AlertEvent
from frontend.events.event_ids import NOTHING_SEEN, Feed, Seen
from frontend.events.hub import News
from frontend.events.new_batches import NewBatches
from frontend.events.row_numbers import RowNumbers
from rollups.models import RunDay
from spm import limits
from spm.accounts.models import App, AuditEntry, Source
from spm.clock import Clock
from spm.errors import StoreUnavailable
from spm.events import relay
from spm.store.backends.base import Backend

_LOG = logging.getLogger(__name__)
Row = dict[str, Any]
_ACTS = {"roll back": "rolled back", "retract": "retracted", "undo": "undone"}  # by action in the audit log


@dataclass(frozen=True, slots=True)
class Look:
    """The result of one look: news by their numbers, what has been seen since, and whether some news was missed."""

    news: tuple[News, ...]
    seen: Seen
    is_incomplete: bool = False


@dataclass(frozen=True, slots=True)
class _Table:
    feed: Feed
    model: type[Model]
    fields: tuple[str, ...]
    news: Callable[[Sequence[Row]], Iterator[tuple[int, int, str, Row]]]  # rows → app, number, kind, body


class ChangeWatch:
    """What one process has seen of the tables and of the store. Used by one thread at a time."""

    def __init__(self, open_store: Callable[[], Backend], clock: Clock) -> None:
        self._open_store, self._clock = open_store, clock
        self._numbers: dict[Feed, RowNumbers] = {}
        self._batches: NewBatches | None = None
        self._heads: dict[int, int] = {}  # position of the stream by app

    def look(self, apps: Sequence[int]) -> Look:
        """Return what is new; of data only in these apps. The first look finds where the tables begin."""
        now_s = self._clock.monotonic()
        news, is_incomplete = list[News](), False
        for table in _TABLES:
            if table.feed not in self._numbers:
                self._numbers[table.feed] = RowNumbers(_newest_numbers(table), now_s)
                continue
            rows = self._new_rows(table, now_s)
            if rows is None:
                is_incomplete = True
            else:
                news += self._news_of(table, rows)
        news += self._new_data(apps)
        news += self._new_positions(apps)
        seen = [*NOTHING_SEEN]
        for feed, numbers in self._numbers.items():
            seen[feed] = numbers.settled
        return Look(tuple(news), tuple(seen), is_incomplete)

    def _new_rows(self, table: _Table, now_s: float) -> list[Row] | None:
        """Return the new rows of a table by their numbers; ``None`` if there are too many."""
        numbers = self._numbers[table.feed]
        wanted = Q(pk__gt=numbers.highest)
        if numbers.gaps:
            wanted |= Q(pk__in=numbers.gaps)
        rows = table.model._default_manager.filter(wanted).order_by("pk").values("pk", *table.fields)
        read = list(rows[: limits.EVENTS_LOOK_ROWS_MAX + 1])
        if len(read) > limits.EVENTS_LOOK_ROWS_MAX:
            self._numbers[table.feed] = RowNumbers(_newest_numbers(table), now_s)
            return None
        numbers.note([row["pk"] for row in read], now_s)
        return read

    def _news_of(self, table: _Table, rows: Sequence[Row]) -> Iterator[News]:
        settled = self._numbers[table.feed].settled
        for app, number, kind, body in table.news(rows):
            yield News(app, table.feed, number, kind, orjson.dumps(body), is_settled=number <= settled)

    def _new_data(self, apps: Sequence[int]) -> list[News]:
        if not apps:
            return []
        try:
            if self._batches is None:
                self._batches = NewBatches(self._open_store())
            batches = self._batches.look(apps)
        except StoreUnavailable as error:
            _LOG.warning("the store does not say which apps have new data: %s", error)
            return []
        return [
            News(app, Feed.DATA, number, "data", orjson.dumps({"accepted_ms": ms}))
            for app, (number, ms) in batches.items()
        ]

    def _new_positions(self, apps: Sequence[int]) -> list[News]:
        """Relay what waits, and return which streams went on; one that is seen for the first time is new."""
        if not apps:
            return []
        relay.advance_all()
        heads: dict[int, int] = {}
        for first in range(0, len(apps), limits.EVENTS_LOOK_APPS_MAX):
            part = apps[first : first + limits.EVENTS_LOOK_APPS_MAX]
            rows = App.objects.filter(pk__in=part, organisation__stream_head__position__gt=0)
            heads |= rows.values_list("pk", "organisation__stream_head__position")
        moved = [(app, head) for app, head in heads.items() if self._heads.get(app) != head]
        self._heads = heads
        return [News(app, Feed.EVENTS, head, "event", b'{"stream_position":%d}' % head) for app, head in moved]


def _newest_numbers(table: _Table) -> list[int]:
    newest = table.model._default_manager.order_by("-pk").values_list("pk", flat=True)[: limits.EVENTS_GAPS_MAX]
    return sorted(newest)


def _alerts(rows: Iterable[Row]) -> Iterator[tuple[int, int, str, Row]]:
    for row in rows:
        if row["before"] == row["state"]:
            continue  # a gap in its data began or ended
        body = {
            "id": row["pk"],
            "rule": row["rule_id"],
            "name": row["rule__name"],
            "series": row["labels"],
            "aspect": row["aspect"],
            "state": row["state"],
            "before": row["before"],
            "at_ms": row["at_ms"],
            "value": row["value"],
        }
        if len(orjson.dumps(body)) > limits.EVENT_BYTES_MAX:
            body["series"] = None
        yield row["rule__app_id"], row["pk"], "alert", body


def _runs(rows: Iterable[Row]) -> Iterator[tuple[int, int, str, Row]]:
    """One event for all days of a run and app."""
    last = {(row["app_id"], row["run__number"]): row["pk"] for row in rows}
    for (app, run), number in last.items():
        yield app, number, "run", {"run": run, "state": "done"}


def _acts(rows: Iterable[Row]) -> Iterator[tuple[int, int, str, Row]]:
    """What people did to the samples of apps, from the audit log; a roll back names several apps."""
    for row in rows:
        if row["action"] in _ACTS:
            detail = row["detail"]
            for app in detail.get("apps") or [detail.get("app")]:
                if isinstance(app, int):
                    yield app, row["pk"], "run", {"run": None, "state": _ACTS[row["action"]]}


def _sources(rows: Iterable[Row]) -> Iterator[tuple[int, int, str, Row]]:
    for row in rows:
        first_ms = int(row["first_seen"].timestamp() * 1000)
        yield row["app_id"], row["pk"], "source", {"name": row["name"], "state": "new", "first_ms": first_ms}


_ALERT_FIELDS = ("rule_id", "rule__app_id", "rule__name", "labels", "aspect", "state", "before", "at_ms", "value")
_TABLES = (
    _Table(Feed.ALERTS, AlertEvent, _ALERT_FIELDS, _alerts),
    _Table(Feed.RUNS, RunDay, ("app_id", "run__number"), _runs),
    _Table(Feed.AUDIT, AuditEntry, ("action", "detail"), _acts),
    _Table(Feed.SOURCES, Source, ("app_id", "name", "first_seen"), _sources),
)
