"""Opens the query engine for a page or an interface: for one app's data, within limits, and under query admission.

All web processes of a machine share one admission: charts of pages, the REST interface, Prometheus' API, exports and
remote reads of an organisation wait in one queue. A query ends when the client of its request closes the connection;
under a server that does not say so (``spm.client_gone`` of the environ) it never ends early. Enter by `query_session`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.http import HttpRequest

from spm import query
from spm.accounts.models import App
from spm.clock import Clock, SystemClock
from spm.errors import BadQuery, QueryCancelled, QueryRefused
from spm.limits import QUERY_CLIENT_CHECK_S
from spm.query.formats.prometheus import instant_ms
from spm.query.promql.engine import Engine
from spm.query.reader import AppStorage
from spm.query.request.admission import shared_admission
from spm.query.request.budget import Budget, Cancellation, QueryLimits
from spm.query.request.pacing import process_pacer
from spm.query.request.provenance import moment
from spm.store.versions.retractions import Retraction

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
def admitted(
    organisation: int, cancellation: Cancellation, *, patient: bool = False, waits: bool = True
) -> Iterator[None]:
    """Hold a slot of query admission, and give way to shorter queries, while the context lasts.

    A query that does not wait raises ``QueryRefused`` where it would have to, also for a turn among long ones.
    """
    if not waits and not process_pacer().would_be_short(organisation):
        raise QueryRefused("the queries of your organisation take turns, and this one does not wait")
    with admission.admit(organisation, cancellation, patient=patient, waits=waits), process_pacer().query(organisation):
        yield


def note_organisation(environ: Mapping[str, Any], organisation: int) -> None:
    """Tell the web server whose request this is: the next ones of its session then take turns with that of others."""
    note = environ.get("spm.note_organisation")
    if note is not None:
        note(organisation)


@contextmanager
def query_session(
    app: App, request: HttpRequest, asof_ms: int | None = None, draft: Retraction | None = None
) -> Iterator[QuerySession]:
    """Wait for admission and open one app's data; raises `QueryRefused` if no slot becomes free in time.

    ``draft``: a retraction that is not made yet; answers are as if it were in force.
    """
    cancellation = cancellation_of(request.META)
    note_organisation(request.META, app.organisation_id)
    with admitted(app.organisation_id, cancellation):
        storage = storage_of(app.pk, asof_ms)
        yield QuerySession(storage.with_draft(draft) if draft else storage, cancellation)


def storage_of(app_id: int, asof_ms: int | None = None) -> AppStorage:
    """Open the data of one app: as it is now, or as it was accepted by a time."""
    storage = query.storage_for(app_id)
    return storage if asof_ms is None else storage.asof(asof_ms)


def asof_of(text: str | None, now_ms: int) -> int | None:
    """Return the time of an as-of query by its parameter ``asof``; ``None`` if it is missing.

    Raises ``BadQuery``, also for a time in the future.
    """
    if not text:
        return None
    try:
        asof_ms = instant_ms(text)
    except BadQuery as error:
        raise BadQuery(f'invalid parameter "asof": {error}') from error
    if asof_ms > now_ms:
        raise BadQuery(f'invalid parameter "asof": {moment(asof_ms)} is in the future')
    return asof_ms


def cancellation_of(environ: Mapping[str, Any], clock: Clock = _clock) -> Cancellation:
    """Return the cancellation of a request's queries. Whenever it is asked, a long query gives way, too."""
    gone = environ.get("spm.client_gone")
    return process_pacer().tick if gone is None else _ClientCancellation(gone, clock)


class _ClientCancellation:
    """Raises `QueryCancelled` once the client has closed the connection; looks once in ``QUERY_CLIENT_CHECK_S``."""

    def __init__(self, gone: Callable[[], bool], clock: Clock) -> None:
        self._gone, self._clock = gone, clock
        self._next_s = clock.monotonic() + QUERY_CLIENT_CHECK_S

    def __call__(self) -> None:
        process_pacer().tick(self._check)
        self._check()

    def _check(self) -> None:
        now = self._clock.monotonic()
        if now < self._next_s:
            return
        self._next_s = now + QUERY_CLIENT_CHECK_S
        if self._gone():
            raise QueryCancelled("the client has gone away")
