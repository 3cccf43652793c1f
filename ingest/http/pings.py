"""Heartbeats: jobs that say by an address that they ran. ``/ping/KEY``, ``…/start``, ``…/fail``, ``…/EXIT_CODE``.

Each says so in metrics of its app, with the label monitor: heartbeat_success (1, or 0 for fail and any exit code but
0), heartbeat_exit_code, heartbeat_duration_seconds where a start came before, and heartbeat_start (1). Whether one is
late is an alert's question: ``absent_over_time(heartbeat_success{monitor="backup"}[25h])``. The key is the whole
identity, 128 random bits; who does not know one learns nothing. A body is not read. Enter by ``ping``.
"""

import re
import uuid
from collections.abc import Mapping

import numpy as np
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_http_methods

from ingest.accept.acceptor import Sender, front_door
from ingest.http.answers import answering
from ingest.models import Heartbeat
from spm.accounts import audit
from spm.accounts.models import App, AuditEntry
from spm.clock import moment, random_bytes
from spm.errors import BadMessage, Refused
from spm.limits import HEARTBEATS_PER_APP_MAX
from spm.wire import Parsed, SeriesTable, canonical

EXIT_MAX = 255
_CODE = re.compile("[0-9]{1,4}")


@answering
@require_http_methods(["GET", "HEAD", "POST"])
def ping(request: HttpRequest, key: str, act: str = "") -> HttpResponse:
    """One sign of life; 404 for a key that nobody has."""
    try:
        known = take(uuid.UUID(key), act, front_door().clock.now_ms())
    except ValueError:  # no key at all
        known = False
    text, status = ("OK\n", 200) if known else ("no such heartbeat\n", 404)
    return HttpResponse(text, status=status, content_type="text/plain")


def take(key: uuid.UUID, act: str, now_ms: int) -> bool:
    """Note it, and push its metrics; true when they are durable, false when nobody has the key."""
    found = Heartbeat.objects.filter(key=key, app__going=None).first()
    if found is None:
        return False
    values = said(act, found.started_ms, now_ms)
    door = front_door()
    door.pace(found.app_id)
    forms = [canonical(metric, {"monitor": found.name}) for metric in values]
    columns = (np.full(len(values), now_ms, np.int64), np.array(list(values.values()), np.float64))
    parsed = Parsed(SeriesTable.from_canonical(forms), np.arange(len(values), dtype=np.int32), *columns, len(values))
    door.push(parsed, sender=Sender(found.app_id, found.name, "ping"), message_id=random_bytes(16))
    started = {"started_ms": now_ms if act == "start" else None}
    Heartbeat.objects.filter(pk=found.pk).update(last_ms=now_ms, last_act=act or "success", **started)
    return True


def said(act: str, started_ms: int | None, now_ms: int) -> Mapping[str, float]:
    """What a sign of life says, as metrics."""
    if act == "start":
        return {"heartbeat_start": 1.0}
    code = int(act) if _CODE.fullmatch(act) else None
    if act not in ("", "fail") and (code is None or code > EXIT_MAX):
        raise BadMessage("not a sign of life", got=act, wanted=f"start, fail or an exit code, 0 to {EXIT_MAX}")
    values = {"heartbeat_success": float(act == "" or code == 0)}
    if code is not None:
        values["heartbeat_exit_code"] = float(code)
    if started_ms is not None and now_ms >= started_ms:
        values["heartbeat_duration_seconds"] = (now_ms - started_ms) / 1_000
    return values


def make(app: App, name: str, *, actor: User | None, now_ms: int) -> Heartbeat:
    """A new one with a key of its own; ``Refused`` when the name is taken or there are too many."""
    name = name.strip()
    with transaction.atomic():
        own = Heartbeat.objects.filter(app=app)
        if not name or own.filter(name=name).exists():
            raise Refused("a heartbeat needs a name that no other one of the app has", got=name)
        if own.count() >= HEARTBEATS_PER_APP_MAX:
            raise Refused("the app has too many heartbeats", wanted=f"at most {HEARTBEATS_PER_APP_MAX}")
        created = moment(now_ms)
        made = Heartbeat.objects.create(app=app, name=name, key=uuid.UUID(bytes=random_bytes(16)), created=created)
        _record("heartbeat made", made, actor)
    return made


def drop(found: Heartbeat, *, actor: User) -> None:
    """Its key is nobody's from now on; what it said stays."""
    with transaction.atomic():
        _record("heartbeat deleted", found, actor)
        found.delete()


def _record(action: str, found: Heartbeat, actor: User | None) -> AuditEntry:
    organisation = found.app.organisation
    return audit.record(action, found.name, actor=actor, organisation=organisation, detail={"app": found.app_id})
