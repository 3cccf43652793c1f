"""Our agents as the site knows them: their heartbeats, the settings pushed to them, and the health of each.

``record_heartbeat`` records a heartbeat and answers with settings, when the agent has others than it should; it also
notes where two processes that run at one time use one name. ``settings_of`` joins what is pushed to one agent: first to
all, then to those with a tag, then to it by name. ``push_settings`` changes that, with an entry in the audit log.
``list_health`` says of each agent whether it is up, late (overdue) or gone, by heartbeats and data both, and why;
``judge_health`` is the pure part of that. An agent's name is the name of the source its data comes from.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from ingest.agent.settings.pushed import check_settings
from ingest.models import Agent, AgentSettings
from spm import limits
from spm.accounts import audit, sources
from spm.accounts.models import App, Source
from spm.clock import moment
from spm.errors import LimitExceeded, Refused

HeartbeatFields = Mapping[str, Any]
_COPIED_FIELDS = (
    "version",
    "platform",
    "period_ms",
    "spool",
    "sequence",
    "spooled",
    "oldest_ms",
    "dropped_messages",
    "dropped_samples",
    "tags",
    "collectors",
    "etag",
    "refused",
)


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """The answer to a heartbeat. ``settings`` is None when the agent has the right ones."""

    new: bool
    etag: str
    settings: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class AgentHealth:
    """The health of one agent. ``data_ms``: when its data last came, 0 for never."""

    agent: Agent
    state: str
    why: str
    data_ms: int
    beat_ms: int
    pushed_etag: str  # of the settings it should have

    @property
    def has_pushed_settings(self) -> bool:
        """Whether it has the settings it should have."""
        return self.agent.etag == self.pushed_etag

    @property
    def problems(self) -> Mapping[str, str]:
        """The collectors that fail, with their errors."""
        return {name: text for name, text in self.agent.collectors.items() if text != "ok"}

    @property
    def is_duplicate(self) -> bool:
        """Whether two agents use its name."""
        twin = self.agent.twin
        return twin is not None and (self.agent.last_seen - twin).total_seconds() < limits.AGENT_TWIN_S

    @property
    def has_wrong_clock(self) -> bool:
        """Whether its clock is so wrong that its samples are."""
        return abs(self.agent.offset_ms or 0) >= limits.AGENT_OFFSET_BAD_MS


def record_heartbeat(app_id: int, heartbeat: HeartbeatFields, now_ms: int) -> HeartbeatReply:
    """Record what an agent says of itself, and return the answer."""
    at, name, process_ms = moment(now_ms), heartbeat["name"], heartbeat["started_ms"]
    values = {field: heartbeat[field] for field in _COPIED_FIELDS}
    # A wrong clock must not move its start into a year that no page can show.
    offset_ms = max(-limits.TIME_MAX_MS, min(heartbeat["now_ms"] - now_ms, limits.TIME_MAX_MS))
    started = moment(min(max(process_ms - offset_ms, 0), now_ms))
    values |= {"started": started, "process_ms": process_ms, "last_seen": at, "offset_ms": offset_ms}
    if _is_second_process(Agent.objects.filter(app_id=app_id, name=name).first(), process_ms, started, at):
        values["twin"] = at
    known = Agent.objects.filter(app_id=app_id, name=name).update(**values) > 0
    new = not known and _add(app_id, name, {**values, "first_seen": at})
    sources.note_period(app_id, name, heartbeat["period_ms"], now_ms)
    etag, settings = settings_of(app_id, name, heartbeat["tags"])
    return HeartbeatReply(new, etag, None if etag == heartbeat["etag"] else settings)


def settings_of(app_id: int, name: str, tags: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """Return the settings pushed to this agent, with their etag; the closest match wins, tags are joined."""
    return _join(list(AgentSettings.objects.filter(app_id=app_id)), name, tags)


def push_settings(
    app: App, match: str, settings: Mapping[str, Any], *, actor: User | None, by: str, now_ms: int
) -> None:
    """Push these settings to matching agents from their next heartbeat on; empty settings end that."""
    if refused := check_settings("", dict(settings), {}).refused:
        raise Refused("agents do not apply this", got="; ".join(f"{name}: {why}" for name, why in refused.items()))
    with transaction.atomic():
        rows = AgentSettings.objects.filter(app=app)
        if not settings:
            rows.filter(match=match).delete()
        else:
            if not rows.filter(match=match).exists() and rows.count() >= limits.AGENT_MATCHES_MAX:
                raise LimitExceeded("too many entries of agents' settings", wanted=limits.AGENT_MATCHES_MAX)
            fields = {"settings": dict(settings), "changed": moment(now_ms), "changed_by": by[:150]}
            AgentSettings.objects.update_or_create(app=app, match=match, defaults=fields)
        detail = {"app": app.pk, "settings": dict(settings)}
        audit.record("agent settings", match, actor=actor, organisation=app.organisation, detail=detail, name=by)


def forget_agent(app: App, name: str, *, actor: User | None, by: str) -> bool:
    """Take an agent off the list; it comes back with its next heartbeat. Its data stays."""
    with transaction.atomic():
        count, _ = Agent.objects.filter(app=app, name=name).delete()
        if count:
            audit.record(
                "agent forgotten", name, actor=actor, organisation=app.organisation, detail={"app": app.pk}, name=by
            )
    return bool(count)


def list_health(app: App, now_ms: int) -> list[AgentHealth]:
    """Return the health of every agent of an app, those in trouble first."""
    data_ms = {s.name: int(s.last_seen.timestamp() * 1000) for s in Source.objects.filter(app=app)}
    pushed = list(AgentSettings.objects.filter(app=app))
    healths = [
        judge_health(agent, data_ms.get(agent.name, 0), now_ms, _join(pushed, agent.name, agent.tags)[0])
        for agent in app.agents.all()
    ]
    order = ("late", "gone", "up")
    return sorted(healths, key=lambda one: (order.index(one.state), not one.problems, one.agent.name))


def judge_health(agent: Agent, data_ms: int, now_ms: int, pushed_etag: str = "") -> AgentHealth:
    """Judge an agent: ``up`` while data comes in time; ``late`` also when heartbeats come without data. Pure."""
    beat_ms = int(agent.last_seen.timestamp() * 1000)
    by_data = sources.state(data_ms, now_ms, agent.period_ms)
    by_beat = sources.state(beat_ms, now_ms, limits.AGENT_HEARTBEAT_S * 1000)
    state, why = by_data, ""
    if by_data == "up" and by_beat != "up":
        why = "data comes, heartbeats do not: it may be stopping, or something blocks them on their way"
    elif by_data != "up" and by_beat == "up":
        state = "late"
        waiting = f"{agent.spooled:,} messages wait on its disk" if agent.spooled else "it has none to send"
        why = f"it runs, but no data comes: {waiting}"
    elif by_data != "up":
        state = min(by_data, by_beat, key=("up", "late", "gone").index)
        why = "neither data nor heartbeats come: the host is down, cut off, or the agent was stopped"
    return AgentHealth(agent, state, why, data_ms, beat_ms, pushed_etag)


def _is_second_process(known: Agent | None, process_ms: int, started: datetime, now: datetime) -> bool:
    """Whether another process used this name recently, at a time when the present one was running."""
    if known is None or known.process_ms in (None, process_ms):
        return False
    recently = now - known.last_seen < timedelta(seconds=limits.AGENT_TWIN_S)
    return recently and known.last_seen - started > timedelta(seconds=limits.AGENT_TWIN_SLACK_S)


def _join(pushed: list[AgentSettings], name: str, tags: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    own = {f"{key}={value}" for key, value in tags.items()}
    ranks = [
        (0 if p.match == "*" else 1 if p.match in own else 2, p.match, p.settings)
        for p in pushed
        if p.match in ("*", name) or p.match in own
    ]
    settings: dict[str, Any] = {}
    for _, _, given in sorted(ranks, key=lambda one: one[:2]):
        both = {**settings.get("tags", {}), **given.get("tags", {})}
        settings |= given
        if both:
            settings["tags"] = both
    if not settings:
        return "", {}
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest(), settings


def _add(app_id: int, name: str, values: dict[str, Any]) -> bool:
    if Agent.objects.filter(app_id=app_id).count() >= limits.AGENTS_PER_APP_MAX:
        raise LimitExceeded("the app has too many agents", wanted=limits.AGENTS_PER_APP_MAX)
    try:
        with transaction.atomic():
            Agent.objects.create(app_id=app_id, name=name, **values)
    except IntegrityError:  # two heartbeats came at the same moment
        return False
    return True
