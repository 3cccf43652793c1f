"""The way from a page or an interface to the query engine: whose data, within which limits, and in whose turn.

Turns are shared by all ways to ask and by all web processes of a machine: charts of pages, the REST interface,
Prometheus' API, exports and remote reads of an organisation stand in one line. Enter by `asking`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.conf import settings
from django.http import HttpRequest

from frontend.client_presence import watch_of
from spm import query
from spm.accounts.models import App
from spm.clock import SystemClock
from spm.query.promql.engine import Engine
from spm.query.reader import AppStorage
from spm.query.request.admission import shared
from spm.query.request.budget import Budget, QueryLimits, Watch

turns = shared(settings.SPM_DATA / "turns")
_clock = SystemClock()


@dataclass(frozen=True, slots=True)
class Asking:
    """One app's data, for as long as its organisation has the turn."""

    storage: AppStorage
    watch: Watch

    def budget(self) -> Budget:
        """What one query may use, and whether anybody still waits for it."""
        return Budget(QueryLimits(), _clock, self.watch)

    def engine(self) -> Engine:
        """The evaluator for one query."""
        return Engine(self.storage, budget=self.budget())


@contextmanager
def asking(app: App, request: HttpRequest, asof_ms: int | None = None) -> Iterator[Asking]:
    """A turn to ask about one app, and no other; `QueryRefused` when there is none in time."""
    watch = watch_of(request.META)
    with turns.take(app.organisation_id, watch):
        yield Asking(storage_of(app.pk, asof_ms), watch)


def storage_of(app_id: int, asof_ms: int | None = None) -> AppStorage:
    """The data of one app: as it is, or as accepted by a time."""
    storage = query.storage_for(app_id)
    return storage if asof_ms is None else storage.asof(asof_ms)
