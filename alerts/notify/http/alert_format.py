"""Writes a notification as Alertmanager's alerts and as its webhook body (version 4), from the frozen body alone. Pure.

An alert that goes on has no end in the webhook body. For an Alertmanager it has one, a while ahead: who says nothing
more of it lets it end there.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import orjson

from alerts.notify.text import rfc3339
from alerts.notify.wording import is_over, line_text, subject

OPEN_END = "0001-01-01T00:00:00Z"  # how Go writes no time


def webhook_body(body: Mapping[str, Any], *, base_url: str) -> bytes:
    """Return the JSON of a webhook: Alertmanager's fields, and ours: key, sequence, title, groupCount.

    What is counted and not written (``truncatedAlerts``) is seen at ``externalURL``.
    """
    alerts = [webhook_alert(line, body["at_ms"], base_url) for line in body["lines"]]
    group = dict(body["groups"][0]["labels"]) if len(body["groups"]) == 1 else {}
    return orjson.dumps(
        {
            "version": "4",
            "groupKey": body["key"].rsplit(".", 1)[0],
            "truncatedAlerts": sum(body["more"].values()),
            "groupCount": len(body["groups"]) + body.get("groups_more", 0),
            "status": "firing" if any(alert["status"] == "firing" for alert in alerts) else "resolved",
            "receiver": body["key"].partition(".")[0],
            "groupLabels": group,
            "commonLabels": _common([alert["labels"] for alert in alerts]),
            "commonAnnotations": _common([alert["annotations"] for alert in alerts]),
            "externalURL": f"{base_url}/alerts/",
            "alerts": alerts,
            "key": body["key"],
            "sequence": body["n"],
            "title": subject(body),
        }
    )


def webhook_alert(line: Mapping[str, Any], at_ms: int, base_url: str) -> dict[str, Any]:
    """Return one line as an alert of the webhook body, with what it says and of which episode."""
    alert = alert_of(line, end=OPEN_END if not is_over(line) else rfc3339(_end_ms(line, at_ms)), base_url=base_url)
    return {
        **alert,
        "status": "resolved" if is_over(line) else "firing",
        "fingerprint": fingerprint_of(alert["labels"]),
        "episode": line["episode"],
        "kind": line["kind"],
        "perhaps": line["perhaps"],
        "value": line["value"],
    }


def fingerprint_of(labels: Mapping[str, str]) -> str:
    """Return what names an alert with these labels, in sixteen hexadecimal digits."""
    return blake2b(orjson.dumps(labels, option=orjson.OPT_SORT_KEYS), digest_size=8).hexdigest()


def alertmanager_alert(line: Mapping[str, Any], *, at_ms: int, lasts_ms: int, base_url: str) -> dict[str, Any]:
    """Return one line as an alert for ``/api/v2/alerts``; one that goes on ends ``lasts_ms`` ahead."""
    end_ms = _end_ms(line, at_ms) if is_over(line) else at_ms + lasts_ms
    return alert_of(line, end=rfc3339(end_ms), base_url=base_url)


def alert_of(line: Mapping[str, Any], *, end: str, base_url: str) -> dict[str, Any]:
    """Return the labels, annotations and times of one line.

    An alert of a rule file has the labels and annotations that Prometheus gives it, and nothing besides. Others also
    have their severity, their app, and what the rule says.
    """
    text = line_text(line)
    labels = dict(line.get("alert_labels") or _series_labels(line))  # a body of an older version has only the latter
    notes = dict(line.get("annotations", {}))
    if not line.get("is_of_file", False):
        labels = {"severity": line["severity"], **labels, "app": line["app_name"]}
        own = {"summary": text.title, "condition": text.condition, "value": text.value, "note": text.note}
        notes = {**own, **notes}
    if (aspect := line.get("aspect", "value")) != "value":
        labels["aspect"] = aspect  # missing data of a series is another alert than its value
    path = f"/alerts/rules/{line['rule']}" if line["rule"] else "/alerts/"
    return {
        "labels": labels,
        "annotations": {name: value for name, value in notes.items() if value},
        "startsAt": rfc3339(line["start_ms"]),
        "endsAt": end,
        "generatorURL": base_url + path,
    }


def _series_labels(line: Mapping[str, Any]) -> dict[str, str]:
    labels = {name: value for name, value in line["labels"].items() if name != "__name__" and value}
    return {**labels, "alertname": line["name"]}


def _end_ms(line: Mapping[str, Any], at_ms: int) -> int:
    """Return the end of a line of something over; one that never was ends when that was said."""
    return at_ms if line["end_ms"] is None else line["end_ms"]


def _common(of: Sequence[Mapping[str, str]]) -> dict[str, str]:
    first = of[0] if of else {}
    return {name: value for name, value in first.items() if all(each.get(name) == value for each in of)}
