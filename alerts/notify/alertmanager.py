"""Sends alerts to an Alertmanager, by its API (``/api/v2/alerts``), as Prometheus does.

An Alertmanager forgets alerts at their end, so what goes on is sent again before that: ``alerts.telling.refresh`` does
it. It deduplicates by labels, so sending twice changes nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from django.conf import settings

from alerts.notify.base import RenderedMessage
from alerts.notify.http.alert_format import alertmanager_alert
from alerts.notify.http.post import is_web_address, origin_of, post_json
from alerts.notify.wording import subject

KIND = "alertmanager"
ALERT_LASTS_MS = 4 * 60_000  # without another word the Alertmanager ends it: four times the pause between two
_PREFIX = "alertmanager+"
_PATH = "/api/v2/alerts"


class AlertmanagerNotifier:
    """Sends to the address of an Alertmanager, written ``alertmanager+http://host:9093``."""

    receiver_hint = "Alertmanager (alertmanager+https://…)"

    def accepts(self, receiver: str) -> bool:
        return receiver.startswith(_PREFIX) and is_web_address(receiver.removeprefix(_PREFIX))

    def shown(self, receiver: str) -> str:
        return _PREFIX + origin_of(receiver.removeprefix(_PREFIX))

    def render(self, key: str, payload: Mapping[str, Any]) -> RenderedMessage:
        shown = self.shown(payload["receivers"][0])
        body = _write(payload["lines"], payload["at_ms"]).decode()
        return RenderedMessage(subject(payload), [shown], (("POST", shown),), body)

    def send(self, key: str, payload: Mapping[str, Any]) -> str:
        return self.send_lines(payload["receivers"][0], payload["lines"], payload["at_ms"])

    def send_lines(self, receiver: str, lines: Sequence[Mapping[str, Any]], at_ms: int) -> str:
        """Send these lines as alerts."""
        address = receiver.removeprefix(_PREFIX).rstrip("/").removesuffix(_PATH) + _PATH
        return post_json(address, _write(lines, at_ms), {"User-Agent": "SPM"})


def _write(lines: Sequence[Mapping[str, Any]], at_ms: int) -> bytes:
    base_url = settings.SPM_BASE_URL
    alerts = [alertmanager_alert(line, at_ms=at_ms, lasts_ms=ALERT_LASTS_MS, base_url=base_url) for line in lines]
    return orjson.dumps(alerts)
