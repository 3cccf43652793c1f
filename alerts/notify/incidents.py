"""Services that keep the state of an alert: PagerDuty and Opsgenie. An episode is one incident there.

Each line of a notification is one request, with the episode as its key, so one that is sent twice changes nothing. What
was over long before it was known wakes nobody: it is not sent.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import orjson
from django.conf import settings

from alerts.notify.base import DeliveryFailed, RenderedMessage
from alerts.notify.http.post import check, excerpt, open_exchange, request
from alerts.notify.links import rule_url
from alerts.notify.text import one_line, rfc3339
from alerts.notify.wording import is_over, line_text, subject

_KEY_CHARS = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-")


@dataclass(frozen=True, slots=True)
class Call:
    """One request of a hand-over."""

    url: str
    body: Mapping[str, Any]


class IncidentNotifier(ABC):
    """Opens and closes an incident for each episode. A receiver is ``scheme://KEY``, or ``scheme://KEY@eu``."""

    scheme: str
    receiver_hint: str

    @abstractmethod
    def opening(self, receiver: str, line: Mapping[str, Any], alias: str) -> Call:
        """Return the request that opens the incident of the line."""

    @abstractmethod
    def closing(self, receiver: str, line: Mapping[str, Any], alias: str) -> Call:
        """Return the request that closes it."""

    def headers(self, receiver: str) -> Mapping[str, str]:
        """Return the headers of its requests."""
        return {}

    def accepts(self, receiver: str) -> bool:
        key, region = _parts(receiver)
        return (
            receiver.startswith(f"{self.scheme}://")
            and 16 <= len(key) <= 100
            and set(key) <= _KEY_CHARS
            and region in ("", "eu")
        )

    def shown(self, receiver: str) -> str:
        key, region = _parts(receiver)
        return f"{self.scheme}://…{key[-4:]}" + (f"@{region}" if region else "")

    def render(self, key: str, payload: Mapping[str, Any]) -> RenderedMessage:
        receiver = payload["receivers"][0]
        shown = self.shown(receiver)
        calls = [{"POST": call.url, **call.body} for call in self._calls("…", payload)]
        text = orjson.dumps(calls, option=orjson.OPT_INDENT_2).decode()
        return RenderedMessage(subject(payload), [shown], (("To", shown),), text)

    def send(self, key: str, payload: Mapping[str, Any]) -> str:
        receiver, answer, taken = payload["receivers"][0], "nothing in it for this service", 0
        headers = {"Content-Type": "application/json", **self.headers(_parts(receiver)[0])}
        with open_exchange() as exchange:
            for call in self._calls(receiver, payload):
                try:
                    response = request(exchange, "POST", call.url, data=orjson.dumps(call.body), headers=headers)
                    check(response)
                except DeliveryFailed as failure:
                    is_partial = failure.perhaps or taken > 0
                    raise DeliveryFailed(str(failure), permanent=failure.permanent, perhaps=is_partial) from failure
                answer, taken = excerpt(response), taken + 1
        return answer

    def _calls(self, receiver: str, payload: Mapping[str, Any]) -> Iterator[Call]:
        for line in payload["lines"]:
            alias = alias_of(line["episode"] or payload["key"])
            if line["kind"] == "late":
                continue
            if line["kind"] in ("brief", "test") or not is_over(line):
                yield self.opening(receiver, line, alias)
            if is_over(line):
                yield self.closing(receiver, line, alias)


class PagerDutyNotifier(IncidentNotifier):
    """PagerDuty's Events API, version 2; the key is the integration key of a service."""

    scheme = "pagerduty"
    receiver_hint = "pagerduty://KEY"

    def opening(self, receiver: str, line: Mapping[str, Any], alias: str) -> Call:
        payload = {
            "summary": _summary(line, 1_024),
            "source": line["labels"].get("host") or line["app_name"],
            "severity": line["severity"],
            "timestamp": rfc3339(line["start_ms"]),
            "group": line["app_name"],
            "custom_details": _details(line),
        }
        runbook = line_text(line).runbook
        links = [{"href": rule_url(line["rule"]), "text": "The rule"}]
        links += [{"href": runbook, "text": "Runbook"}] if runbook else []
        return self._event(receiver, "trigger", alias, {"payload": payload, "links": links})

    def closing(self, receiver: str, line: Mapping[str, Any], alias: str) -> Call:
        return self._event(receiver, "resolve", alias, {})

    def _event(self, receiver: str, action: str, alias: str, more: Mapping[str, Any]) -> Call:
        key, region = _parts(receiver)
        host = "events.eu.pagerduty.com" if region == "eu" else "events.pagerduty.com"
        body = {"routing_key": key, "event_action": action, "dedup_key": alias, "client": "SPM", **more}
        return Call(f"https://{host}/v2/enqueue", body)


class OpsgenieNotifier(IncidentNotifier):
    """Opsgenie's alerts; the key is that of an API integration."""

    scheme = "opsgenie"
    receiver_hint = "opsgenie://KEY"
    _PRIORITIES: Mapping[str, str] = {"critical": "P1", "warning": "P3", "info": "P5"}

    def headers(self, receiver: str) -> Mapping[str, str]:
        return {"Authorization": f"GenieKey {receiver}"}

    def opening(self, receiver: str, line: Mapping[str, Any], alias: str) -> Call:
        body = {
            "message": _summary(line, 130),
            "alias": alias,
            "description": rule_url(line["rule"]),
            "priority": self._PRIORITIES.get(line["severity"], "P3"),
            "source": "SPM",
            "details": _details(line),
        }
        return Call(self._url(receiver), body)

    def closing(self, receiver: str, line: Mapping[str, Any], alias: str) -> Call:
        note = line_text(line).note or line_text(line).word
        return Call(f"{self._url(receiver)}/{alias}/close?identifierType=alias", {"source": "SPM", "note": note})

    def _url(self, receiver: str) -> str:
        host = "api.eu.opsgenie.com" if _parts(receiver)[1] == "eu" else "api.opsgenie.com"
        return f"https://{host}/v2/alerts"


def alias_of(episode: object) -> str:
    """Name an episode for services outside: one of another installation has another name."""
    return f"spm-{urlsplit(settings.SPM_BASE_URL).hostname}-{episode}"


def _parts(receiver: str) -> tuple[str, str]:
    key, _, region = receiver.partition("://")[2].partition("@")
    return key, region


def _summary(line: Mapping[str, Any], chars: int) -> str:
    text = line_text(line)
    return one_line(" ".join(filter(None, (text.title, text.value, text.condition))), chars)


def _details(line: Mapping[str, Any]) -> dict[str, str]:
    text = line_text(line)
    own = {"condition": text.condition, "value": text.value, "note": text.note}
    labels, texts = line.get("alert_labels") or line["labels"], line.get("annotations", {})
    return {**labels, **own, **texts}
