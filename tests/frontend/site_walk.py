"""All addresses of the site, with a world in which each of them names something, and the answers that people get.

``routes`` lists the addresses from the site's own URLs, so that a new one is seen as soon as it exists. ``fill_world``
makes one thing of each kind in an organisation and returns what stands for it in addresses. ``Caller`` asks, and takes
back what the answer changed.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import orjson
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpResponse
from django.test import Client
from django.urls import URLPattern, URLResolver

from alerts import rulebook
from alerts.models import Episode
from alerts.models.noise import NoiseReport
from alerts.models.telling import ContactPoint, Inhibition, MuteTiming, Policy
from alerts.notify.text import rfc3339
from alerts.rulefiles import apply
from alerts.telling import actions
from alerts.telling.settings import rows
from frontend.api.alertmanager.base import silence_id
from frontend.dashboards import storage
from frontend.dashboards.document import check
from ingest.http import pings
from ingest.models import Agent
from rollups.models import Run, RunDay, RunKind, RunState
from rollups.retraction import Draft
from rollups.services import retractions
from rollups.services import runs as services_runs
from spm.accounts.models import AuditEntry, Membership, Role
from spm.accounts.organisations import invitations
from spm.accounts.services import issue_token
from spm.clock import SystemClock, moment
from spm.events import groups
from spm.events.outbox import Place
from tests.alerts import conftest as alerting
from tests.support.people import Tenant

_RULE_FILE = "groups: [{name: g, rules: [{alert: A, expr: up == 0}]}]"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_PATTERNS = {  # of addresses that a pattern describes
    r"/^prometheus/": "/prometheus/none",
    r"/^api/": "/api/v1/none",
    r"/^metrics/(?P<group>job(?:@base64)?/.+)$": "/metrics/job/none",
    r"/^ping/(?P<key>[^/]+)(?:/(?P<act>[^/]+))?$": "/ping/none",
    r"/^broker/(?P<secret>[^/]+)/(?P<question>user|vhost|resource|topic)$": "/broker/none/user",
}


def routes(patterns: list[Any], before: str = "/") -> Iterator[str]:
    """Yield every address of the site."""
    for pattern in patterns:
        here = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns, here)
        elif isinstance(pattern, URLPattern):
            yield here


def fill_world(tenant: Tenant) -> dict[str, str]:
    """Make what addresses name; returns the part of an address before a parameter → the parameter."""
    app, owner, now_ms = tenant.app, tenant.owner, SystemClock().now_ms()
    now = moment(now_ms)
    other = User.objects.create_user("other@alpha.example")
    member = Membership.objects.create(organisation=tenant.organisation, user=other, role=Role.VIEWER)
    own = Membership.objects.get(organisation=tenant.organisation, user=owner)
    rule = rulebook.write(app, alerting.draft(), by=owner, now_ms=now_ms)
    apply.import_files(app, {"node.yml": _RULE_FILE}, by=apply.Author(owner, "owner"), now_ms=now_ms)
    point = actions.add_contact_point(tenant.organisation, "Ops", ("ops@example.org",), by=owner, now_ms=now_ms)
    receiver = point.receivers.get()
    receiver.confirmed_ms = now_ms
    receiver.save()
    times = {"start_ms": now_ms, "created_ms": now_ms, "changed_ms": now_ms}
    episode = Episode.objects.create(rule=rule, fingerprint="f", labels={}, severity="warning", **times)
    run = Run.objects.create(number=7, kind=RunKind.FULL, executor="local", started=now, state=RunState.DONE, units=1)
    RunDay.objects.create(
        run=run, app=app, day=now - timedelta(days=1), published=True, units=1, samples=1, size_bytes=1
    )
    Agent.objects.create(app=app, name="web-1", period_ms=10_000, started=now, first_seen=now, last_seen=now)
    by, site = retractions.Actor("owner", "127.0.0.1", owner), services_runs.site()
    one, two = (
        retractions.retract(site, app, Draft(source=name, reason="x", author="o"), by)[0].retraction.number
        for name in "ab"
    )
    place = Place(app.organisation_id, app.pk)
    event_draft = groups.GroupDraft(name="mailers", position=0, partitions=2)
    group, _ = groups.register(place, event_draft, now_ms=now_ms)
    return {
        **fill_dashboards(tenant, now_ms),
        "groups": group.name,
        "consumers": groups.join(group, lease_s=60, now_ms=now_ms).name,
        "apps": str(app.pk),
        "organisations": str(tenant.organisation.pk),
        "org": str(tenant.organisation.pk),
        "members": str(member.pk),
        "invitations": str(invitations.create(own, "guest@example.org", "viewer")[0].pk),
        "admin token": str(issue_token(owner, app, name="robot", scopes=["admin"])[0].pk),
        "tokens": str(issue_token(owner, app, name="sender", scopes=["ingest"])[0].pk),
        "rules": str(rule.pk),
        "files": "node.yml",
        "runs": "7",
        "rollups": "7",
        "retractions": str(one),
        "corrections": str(two),
        "notifications": str(actions.test_fire(receiver, by=owner, now_ms=now_ms).pk),
        "contact-points": str(point.pk),
        "receivers": str(receiver.pk),
        **fill_silences(tenant, now_ms),
        **fill_settings(tenant, point, now_ms),
        "alerts": str(episode.pk),
        "heartbeats": str(pings.create_heartbeat(app, "backup", actor=owner, now_ms=now_ms).pk),
        "hosts": "web-1",
        "by-name": "web-1",
        "label": "host",
    }


def fill_settings(tenant: Tenant, point: ContactPoint, now_ms: int) -> dict[str, str]:
    """Make a policy, a maintenance window, an inhibition and a noise report."""
    by, matchers = tenant.owner, 'host="a"'
    policy, window, inhibition = (each(organisation=tenant.organisation) for each in (Policy, MuteTiming, Inhibition))
    waits = {"wait_ms": 5_000, "interval_ms": 120_000, "repeat_ms": 14_400_000}
    rows.write(policy, {"matchers": matchers, "contact_point": point, **waits}, by=by, now_ms=now_ms)
    cron = {"name": "W", "cron": "0 2 * * 6", "zone": "UTC", "duration_ms": 60_000}
    rows.write(window, {"matchers": matchers, **cron}, by=by, now_ms=now_ms)
    rows.write(inhibition, {"source": 'alertname="down"', "target": matchers}, by=by, now_ms=now_ms)
    counts = dict.fromkeys(("rules", "alerts", "notifications", "unattended", "flaps"), 0)
    times = {"from_ms": 0, "to_ms": now_ms, "made_ms": now_ms}
    report = NoiseReport.objects.create(organisation=tenant.organisation, **times, **counts)
    return {
        "noise-reports": str(report.pk),
        "policies": str(policy.pk),
        "maintenance-windows": str(window.pk),
        "windows": str(window.pk),
        "inhibitions": str(inhibition.pk),
    }


def fill_silences(tenant: Tenant, now_ms: int) -> dict[str, str]:
    """Make a silence of the organisation, and one of the app, which Alertmanager's interface ends; both end soon."""
    times: dict[str, Any] = {"from_ms": now_ms, "to_ms": now_ms + 60_000, "now_ms": now_ms}
    everyones, own = (
        actions.add_silence(tenant.organisation, matchers, comment="", by=tenant.owner, **times)
        for matchers in ('host="a"', f'app="{tenant.app.name}"')
    )
    soon = now_ms + 60_000
    return {"silences": str(everyones.pk), "silence": silence_id(own.pk), "soon": str(soon), "later": rfc3339(soon)}


def fill_dashboards(tenant: Tenant, now_ms: int) -> dict[str, str]:
    """Make a dashboard of one panel."""
    document = check({"title": "Shop", "panels": [{"number": 1, "queries": [{"expr": "up"}]}]})
    dashboard = storage.create(tenant.app, document, storage.Author(tenant.owner, now_ms))
    return {"dashboards": dashboard.uid, "panels": "1", "versions": "1", "ready": "host-agent"}


def address_of(route: str, values: Mapping[str, str]) -> str:
    """Fill in what an address names; what no world has stays a text that nothing is called."""
    plain = _PATTERNS.get(route, route).replace("{admin token}", values["admin token"])
    plain = re.sub(r"([\w-]+)/<(?:\w+:)?\w+>", lambda match: f"{match[1]}/{values.get(match[1], 'none')}", plain)
    return re.sub(r"<(?:int|str|slug|account):\w+>", "1", plain)


class Caller:
    """Asks as one person, or as a program with a token; each answer's changes of the database are taken back."""

    def __init__(self, person: User | None = None, token: str = "") -> None:
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._session = ""
        self._browser = Client(raise_request_exception=False)  # one loads all middleware
        if person is not None:
            browser = Client()
            browser.force_login(person)
            self._session = browser.cookies[settings.SESSION_COOKIE_NAME].value

    def ask(self, method: str, address: str, body: Mapping[str, Any], *, is_json: bool) -> tuple[HttpResponse, bool]:
        """Return the answer, and whether the audit log has an entry more."""
        browser = self._browser
        browser.cookies.clear()
        if self._session:
            browser.cookies[settings.SESSION_COOKIE_NAME] = self._session
        with transaction.atomic():
            before = AuditEntry.objects.count()
            if is_json:
                answer: Any = browser.generic(
                    method, address, orjson.dumps(body), "application/json", headers=self._headers
                )
            else:
                form = urlencode(body, doseq=True)
                kind = "application/x-www-form-urlencoded"
                answer = browser.generic(method, address, form, kind, headers=self._headers)
            is_noted = AuditEntry.objects.count() > before
            transaction.set_rollback(True)
        if answer.streaming:
            for _ in answer:  # a stream that nobody reads counts among those of its organisation
                pass
        return answer, is_noted
