"""Opens the query engine for a page or an interface: for one app's data, within limits, and under query admission.

All web processes of a machine share one admission: charts of pages, the REST interface, Prometheus' API, exports and
remote reads of an organisation wait in one queue. Enter by `query_session`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.http import HttpRequest

from frontend.client_presence import cancellation_of
from spm import query
from spm.accounts.models import App
from spm.clock import SystemClock
from spm.query.promql.engine import Engine
from spm.query.reader import AppStorage
from spm.query.request.admission import shared_admission
from spm.query.request.budget import Budget, Cancellation, QueryLimits
from spm.query.request.pacing import process_pacer

admission = shared_admission(settings.SPM_DATA / "turns")  # processes of all versions lock slots of this file
_clock = SystemClock()


@dataclass(frozen=True, slots=True)
class QuerySession:
    """Queries on one app's data, while they hold a slot of query admission."""

    storage: AppStorage
    cancellation: Cancellation

    def budget(self) -> Budget:
        """Return the budget of one query, which ends when its client goes away."""
        return Budget(QueryLimits(), _clock, self.cancellation)

    def engine(self) -> Engine:
        """Return the engine for one query."""
        return Engine(self.storage, budget=self.budget())


@contextmanager
def admitted(organisation: int, cancellation: Cancellation, *, patient: bool = False) -> Iterator[None]:
    """Hold a slot of query admission, and give way to shorter queries, while the context lasts."""
    with admission.admit(organisation, cancellation, patient=patient), process_pacer().query(organisation):
        yield


def note_organisation(environ: Mapping[str, Any], organisation: int) -> None:
    """Tell the web server whose request this is: the next ones of its session then take turns with that of others."""
    note = environ.get("spm.note_organisation")
    if note is not None:
        note(organisation)


@contextmanager
def query_session(app: App, request: HttpRequest, asof_ms: int | None = None) -> Iterator[QuerySession]:
    """Wait for admission and open one app's data; raises `QueryRefused` if no slot becomes free in time."""
    cancellation = cancellation_of(request.META)
    note_organisation(request.META, app.organisation_id)
    with admitted(app.organisation_id, cancellation):
        yield QuerySession(storage_of(app.pk, asof_ms), cancellation)


def storage_of(app_id: int, asof_ms: int | None = None) -> AppStorage:
    """Open the data of one app: as it is now, or as it was accepted by a time."""
    storage = query.storage_for(app_id)
    return storage if asof_ms is None else storage.asof(asof_ms)
