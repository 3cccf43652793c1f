"""Our agents as the site knows them: their heartbeats, the settings pushed to them, and how each of them stands.

``beat`` notes a heartbeat and answers with settings, when the agent has others than it should; where two processes that
run at the same time call themselves the same, it notes that. ``settings_of`` joins
what is pushed to one agent: first to all, then to those with a tag, then to it by name. ``push`` changes that, with an
entry in the audit log. ``standings`` says of each agent whether it is up, late or gone, by heartbeats and data both,
and why; ``judge`` is the pure part of that. An agent's name is the name of the source its data comes from.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from ingest.agent.settings.pushed import judge as judged
from ingest.models import Agent, AgentSettings
from spm import limits
from spm.accounts import audit, sources
from spm.accounts.models import App, Source
from spm.clock import moment
from spm.errors import LimitExceeded, Refused

Told = Mapping[str, Any]
_SAME = (
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
class Reply:
    """What an agent is answered. ``settings`` is None when it has the right ones."""

    new: bool
    etag: str
    settings: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Standing:
    """How one agent stands. ``data_ms``: when its data last came, 0 for never."""

    agent: Agent
    state: str
    why: str
    data_ms: int
    beat_ms: int
    wanted: str  # the etag of the settings it should have

    @property
    def settled(self) -> bool:
        """Whether it has the settings it should have."""
        return self.agent.etag == self.wanted

    @property
    def problems(self) -> Mapping[str, str]:
        """Its collectors that fail, and with what."""
        return {name: said for name, said in self.agent.collectors.items() if said != "ok"}

    @property
    def doubled(self) -> bool:
        """Whether there are two of this name."""
        twin = self.agent.twin
        return twin is not None and (self.agent.last_seen - twin).total_seconds() < limits.AGENT_TWIN_S

    @property
    def skewed(self) -> bool:
        """Whether its clock is so wrong that its samples are."""
        return abs(self.agent.offset_ms or 0) >= limits.AGENT_OFFSET_BAD_MS


def beat(app_id: int, told: Told, now_ms: int) -> Reply:
    """Note what an agent says of itself."""
    moment = _moment(now_ms)
    values = {name: told[name] for name in _SAME}
    # A wrong clock must not move its start into a year that no page can show.
    offset_ms = max(-limits.TIME_MAX_MS, min(told["now_ms"] - now_ms, limits.TIME_MAX_MS))
    started = _moment(min(max(told["started_ms"] - offset_ms, 0), now_ms))
    values |= {"started": started, "process_ms": told["started_ms"], "last_seen": moment, "offset_ms": offset_ms}
    if _two(Agent.objects.filter(app_id=app_id, name=told["name"]).first(), told["started_ms"], started, moment):
        values["twin"] = moment
    new = Agent.objects.filter(app_id=app_id, name=told["name"]).update(**values) == 0 and _added(
        app_id, told["name"], {**values, "first_seen": moment}
    )
    sources.announced(app_id, told["name"], told["period_ms"], now_ms)
    etag, settings = settings_of(app_id, told["name"], told["tags"])
    return Reply(new, etag, None if etag == told["etag"] else settings)


def settings_of(app_id: int, name: str, tags: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """What is pushed to this agent, and its mark; what is named more closely wins, tags are joined."""
    return _joined(list(AgentSettings.objects.filter(app_id=app_id)), name, tags)


def push(app: App, match: str, settings: Told, *, actor: User | None, by: str, now_ms: int) -> None:
    """Push these settings to those agents from their next heartbeat on; none at all: push nothing to them any more."""
    if refused := judged("", dict(settings), {}).refused:
        raise Refused("agents do not apply this", got="; ".join(f"{name}: {why}" for name, why in refused.items()))
    with transaction.atomic():
        found = AgentSettings.objects.filter(app=app)
        if not settings:
            found.filter(match=match).delete()
        else:
            if not found.filter(match=match).exists() and found.count() >= limits.AGENT_MATCHES_MAX:
                raise LimitExceeded("too many entries of agents' settings", wanted=limits.AGENT_MATCHES_MAX)
            told = {"settings": dict(settings), "changed": _moment(now_ms), "changed_by": by[:150]}
            AgentSettings.objects.update_or_create(app=app, match=match, defaults=told)
        detail = {"app": app.pk, "settings": dict(settings)}
        audit.record("agent settings", match, actor=actor, organisation=app.organisation, detail=detail, name=by)


def forget(app: App, name: str, *, actor: User | None, by: str) -> bool:
    """Take an agent off the list; it comes back with its next heartbeat. Its data stays."""
    with transaction.atomic():
        gone, _ = Agent.objects.filter(app=app, name=name).delete()
        if gone:
            audit.record(
                "agent forgotten", name, actor=actor, organisation=app.organisation, detail={"app": app.pk}, name=by
            )
    return bool(gone)


def standings(app: App, now_ms: int) -> list[Standing]:
    """Every agent of an app, those in trouble first."""
    heard = {s.name: int(s.last_seen.timestamp() * 1000) for s in Source.objects.filter(app=app)}
    pushed = list(AgentSettings.objects.filter(app=app))
    found = [judge(a, heard.get(a.name, 0), now_ms, _joined(pushed, a.name, a.tags)[0]) for a in app.agents.all()]
    order = ("late", "gone", "up")
    return sorted(found, key=lambda one: (order.index(one.state), not one.problems, one.agent.name))


def judge(agent: Agent, data_ms: int, now_ms: int, wanted: str = "") -> Standing:
    """``up`` while data comes in time; ``late`` also when heartbeats come without data. Pure."""
    beat_ms = int(agent.last_seen.timestamp() * 1000)
    by_data = sources.state(data_ms, now_ms, agent.period_ms)
    by_beat = sources.state(beat_ms, now_ms, limits.AGENT_HEARTBEAT_S * 1000)
    state, why = by_data, ""
    if by_data == "up" and by_beat != "up":
        why = "data comes, heartbeats do not: it may be stopping, or something takes them on their way"
    elif by_data != "up" and by_beat == "up":
        state = "late"
        waiting = f"{agent.spooled:,} messages wait on its disk" if agent.spooled else "it has none to send"
        why = f"it runs, but no data comes: {waiting}"
    elif by_data != "up":
        state = min(by_data, by_beat, key=("up", "late", "gone").index)
        why = "neither data nor heartbeats come: the host is down, cut off, or the agent was stopped"
    return Standing(agent, state, why, data_ms, beat_ms, wanted)


def _two(known: Agent | None, process_ms: int, started: datetime, moment: datetime) -> bool:
    """Whether another process spoke under this name lately, at a time when the one that speaks now was running."""
    if known is None or known.process_ms in (None, process_ms):
        return False
    lately = moment - known.last_seen < timedelta(seconds=limits.AGENT_TWIN_S)
    return lately and known.last_seen - started > timedelta(seconds=limits.AGENT_TWIN_SLACK_S)


def _joined(pushed: list[AgentSettings], name: str, tags: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
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


def _added(app_id: int, name: str, values: dict[str, Any]) -> bool:
    if Agent.objects.filter(app_id=app_id).count() >= limits.AGENTS_PER_APP_MAX:
        raise LimitExceeded("the app has too many agents", wanted=limits.AGENTS_PER_APP_MAX)
    try:
        with transaction.atomic():
            Agent.objects.create(app_id=app_id, name=name, **values)
    except IntegrityError:  # it beat twice at the same moment
        return False
    return True


def _moment(ms: int) -> datetime:
    return moment(ms)
