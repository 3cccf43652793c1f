"""Heartbeats: jobs that report their runs by a URL. ``/ping/KEY``, ``…/start``, ``…/fail``, ``…/EXIT_CODE``.

Each report becomes metrics of the job's app, with the label monitor: heartbeat_success (1, or 0 for fail and any exit
code but 0), heartbeat_exit_code, heartbeat_duration_seconds after a start, and heartbeat_start (1). Whether a heartbeat
is overdue is an alert's question: ``absent_over_time(heartbeat_success{monitor="backup"}[25h])``. The key is the whole
identity, 128 random bits; without one a request learns nothing. The body is not read. Enter by ``ping``.
"""

import re
import uuid
from collections.abc import Mapping

import numpy as np
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_http_methods

from ingest.accept.identity import Sender
from ingest.accept.process_acceptor import process_acceptor
from ingest.http.django_views import with_error_answers
from ingest.models import Heartbeat
from spm.accounts import audit
from spm.accounts.models import App, AuditEntry
from spm.clock import moment, random_bytes
from spm.errors import BadMessage, Refused
from spm.limits import HEARTBEATS_PER_APP_MAX
from spm.wire import Parsed, SeriesTable, canonical

EXIT_MAX = 255
_CODE = re.compile("[0-9]{1,4}")


@with_error_answers
@require_http_methods(["GET", "HEAD", "POST"])
def ping(request: HttpRequest, key: str, act: str = "") -> HttpResponse:
    """Record one report; 404 for a key that no heartbeat has."""
    try:
        known = record_ping(uuid.UUID(key), act, process_acceptor().clock.now_ms())
    except ValueError:  # no UUID
        known = False
    text, status = ("OK\n", 200) if known else ("no such heartbeat\n", 404)
    return HttpResponse(text, status=status, content_type="text/plain")


def record_ping(key: uuid.UUID, act: str, now_ms: int) -> bool:
    """Accept the metrics of a report and record it; return False when no heartbeat has the key."""
    heartbeat = Heartbeat.objects.filter(key=key, app__going=None).first()
    if heartbeat is None:
        return False
    values = ping_metrics(act, heartbeat.started_ms, now_ms)
    acceptor = process_acceptor()
    acceptor.check_rate(heartbeat.app_id)
    forms = [canonical(metric, {"monitor": heartbeat.name}) for metric in values]
    columns = (np.full(len(values), now_ms, np.int64), np.array(list(values.values()), np.float64))
    parsed = Parsed(SeriesTable.from_canonical(forms), np.arange(len(values), dtype=np.int32), *columns, len(values))
    acceptor.accept(parsed, sender=Sender(heartbeat.app_id, heartbeat.name, "ping"), message_id=random_bytes(16))
    started = {"started_ms": now_ms if act == "start" else None}
    Heartbeat.objects.filter(pk=heartbeat.pk).update(last_ms=now_ms, last_act=act or "success", **started)
    return True


def ping_metrics(act: str, started_ms: int | None, now_ms: int) -> Mapping[str, float]:
    """Return the metrics of a report, by name."""
    if act == "start":
        return {"heartbeat_start": 1.0}
    code = int(act) if _CODE.fullmatch(act) else None
    if act not in ("", "fail") and (code is None or code > EXIT_MAX):
        raise BadMessage("not a report of a run", got=act, wanted=f"start, fail or an exit code, 0 to {EXIT_MAX}")
    values = {"heartbeat_success": float(act == "" or code == 0)}
    if code is not None:
        values["heartbeat_exit_code"] = float(code)
    if started_ms is not None and now_ms >= started_ms:
        values["heartbeat_duration_seconds"] = (now_ms - started_ms) / 1_000
    return values


def create_heartbeat(app: App, name: str, *, actor: User | None, now_ms: int) -> Heartbeat:
    """Create a heartbeat with a key of its own; raise ``Refused`` when the name is taken or there are too many."""
    name = name.strip()
    with transaction.atomic():
        own = Heartbeat.objects.filter(app=app)
        if not name or own.filter(name=name).exists():
            raise Refused("a heartbeat needs a name that no other one of the app has", got=name)
        if own.count() >= HEARTBEATS_PER_APP_MAX:
            raise Refused("the app has too many heartbeats", wanted=f"at most {HEARTBEATS_PER_APP_MAX}")
        key, created = uuid.UUID(bytes=random_bytes(16)), moment(now_ms)
        heartbeat = Heartbeat.objects.create(app=app, name=name, key=key, created=created)
        _record("heartbeat made", heartbeat, actor)
    return heartbeat


def delete_heartbeat(heartbeat: Heartbeat, *, actor: User) -> None:
    """Delete a heartbeat and its key; its metrics stay."""
    with transaction.atomic():
        _record("heartbeat deleted", heartbeat, actor)
        heartbeat.delete()


def _record(action: str, heartbeat: Heartbeat, actor: User | None) -> AuditEntry:
    app = heartbeat.app
    return audit.record(
        action, heartbeat.name, actor=actor, organisation=app.organisation, detail={"app": heartbeat.app_id}
    )
