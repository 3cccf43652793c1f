"""What the commands of the OpenAPI schema send: values of parameters, bodies by the name of their operation.

In a text ``%NOW%``, ``%AGO%`` and ``%SOON%`` stand for a time in seconds (an hour ago, in an hour), ``%TODAY%`` and
``%LATER%`` for a written time (now, in an hour), any other ``%NAME%`` for a variable of the shell.
"""

from collections.abc import Mapping

_JSON, _YAML = "application/json", "application/yaml"
SNAPPY = "application/x-protobuf"  # of bodies that stand here as the shell's printf takes them

# The part of a path before a parameter, or the parameter → the variable that stands for it.
PATH_VARIABLES: Mapping[str, str] = {
    "app_id": "APP",
    "organisation_id": "ORGANISATION",
    "alerts": "ALERT",
    "by-name": "AGENT",
    "consumers": "CONSUMER",
    "contact-points": "CONTACT_POINT",
    "dashboards": "DASHBOARD",
    "inhibitions": "INHIBITION",
    "invitations": "INVITATION",
    "maintenance-windows": "WINDOW",
    "members": "MEMBER",
    "noise-reports": "REPORT",
    "notifications": "NOTIFICATION",
    "policies": "POLICY",
    "receivers": "RECEIVER",
    "retractions": "RETRACTION",
    "rules": "RULE",
    "runs": "RUN",
    "silence": "SILENCE_ID",
    "silences": "SILENCE",
    "tokens": "TOKEN_NUMBER",
    "versions": "VERSION",
}
PATH_VALUES: Mapping[str, str] = {
    "files": "node.yml",
    "groups": "mailers",
    "job": "demo",
    "label": "host",
    "ready": "host-agent",
}
VALUES: Mapping[str, str] = {  # of required parameters
    "end": "%NOW%",
    "expr": "up",
    "match": "room_temperature",
    "match[]": "room_temperature",
    "metric": "room_temperature",
    "q": "0.5",
    "query": "room_temperature",
    "start": "%AGO%",
    "step": "60",
}
QUERIES: Mapping[str, Mapping[str, str]] = {  # of operations whose parameters mean something else, or that need one
    "api_v1_events_get": {"timeout": "0"},
    "api_v1_export_get": {"start": "%AGO%"},
    "api_v1_export_post": {"start": "%AGO%"},
    "changes": {"start": "%AGO%000", "end": "%NOW%000"},
    "ingest_query_get": {"q": "SHOW DATABASES"},
    "ingest_query_post": {"q": "SHOW DATABASES"},
    "search": {"q": "web"},
}

_HEARTBEAT = '{"name": "web-1", "version": "1.0", "period_ms": 10000, "started_ms": %AGO%000, "now_ms": %NOW%000}'
_RULE = (
    '{"name": "Room too warm", "expr": "room_temperature", "comparator": ">", "threshold": 25, "for_ms": 60000,'
    ' "receivers": []}'
)
_DASHBOARD = '{"title": "Rooms", "panels": [{"number": 1, "queries": [{"expr": "room_temperature"}]}]}'
_INHIBITION = '{"source": "alertname=\\"Site down\\"", "target": "severity=\\"warning\\"", "equal": ["site"]}'
_WINDOW = (
    '{"name": "Backup", "matchers": "host=\\"db-1\\"", "cron": "0 2 * * 6", "zone": "Europe/Berlin",'
    ' "duration_ms": 3600000}'
)
_POLICY = '{"matchers": "severity=\\"critical\\"", "contact_point": %CONTACT_POINT%}'
_RULE_FILE = (
    "groups:\n  - name: rooms\n    rules:\n      - alert: RoomTooWarm\n        expr: room_temperature > 25\n"
    "        for: 1m"
)
_EMPTY = "\\0"  # a message without content, in snappy
_READ_UP = "\\022\\104\\012\\020\\032\\016\\022\\010__name__\\032\\002up"  # a request for the metric up, in snappy
_RETRACTION = '"series": "room_temperature", "data_from": %AGO%000, "data_to": %NOW%000'
_PANELS = '{"start": %AGO%000, "end": %NOW%000, "panels": [{"id": "a", "expr": "room_temperature"}]}'
_ALERTMANAGER_SILENCE = (
    '{"matchers": [{"name": "host", "value": "db-1", "isRegex": false}], "startsAt": "%TODAY%", "endsAt": "%LATER%",'
    ' "createdBy": "ops", "comment": "new disk"}'
)
BODIES: Mapping[str, tuple[str, str]] = {
    "agent_heartbeat": (_JSON, _HEARTBEAT),
    "agent_register": (_JSON, _HEARTBEAT),
    "agent_settings_push": (_JSON, '{"match": "web-*", "settings": {"period_s": 10}}'),
    "alert_acknowledge": (_JSON, '{"for_ms": 3600000}'),
    "api_v1_import_post": (
        "application/octet-stream",
        '{"metric": {"__name__": "room_temperature", "floor": "2"}, "values": [21.5], "timestamps": [%NOW%000]}',
    ),
    "backtest": (
        _JSON,
        '{"expr": "room_temperature", "comparator": ">", "threshold": 25, "from_ms": %AGO%000, "to_ms": %NOW%000}',
    ),
    "chart_batch": (_JSON, _PANELS),
    "consumer_commit": (_JSON, '{"stream_position": "%POSITION%"}'),
    "consumer_fetch": (_JSON, '{"max": 10}'),
    "consumer_group_register": (_JSON, '{"partitions": 2, "stream_position": "oldest"}'),
    "consumer_group_seek": (_JSON, '{"stream_position": "oldest"}'),
    "consumer_join": (_JSON, '{"lease_s": 60}'),
    "contact_point_write": (_JSON, '{"name": "On call", "receivers": ["oncall@example.org"]}'),
    "dashboard_create": (_JSON, f'{{"document": {_DASHBOARD}, "note": "first version"}}'),
    "dashboard_import": (_JSON, _DASHBOARD),
    "dashboard_save": (_JSON, f'{{"document": {_DASHBOARD}, "note": "other title"}}'),
    "ingest_remote_push_post": (SNAPPY, _EMPTY),
    "ingest_remote_write_post": (SNAPPY, _EMPTY),
    "ingest_remote_write_prometheus_post": (SNAPPY, _EMPTY),
    "inhibition_create": (_JSON, _INHIBITION),
    "inhibition_replace": (_JSON, _INHIBITION),
    "invite": (_JSON, '{"email": "colleague@example.org", "role": "editor"}'),
    "maintenance_window_create": (_JSON, _WINDOW),
    "maintenance_window_replace": (_JSON, _WINDOW),
    "member_role": (_JSON, '{"role": "editor"}'),
    "organisation_rename": (_JSON, '{"name": "Example"}'),
    "policies_test": (_JSON, '{"labels": {"severity": "critical"}}'),
    "policy_create": (_JSON, _POLICY),
    "policy_replace": (_JSON, _POLICY),
    "post_event": (_JSON, '{"kind": "deploy", "text": "Shop 4.2 is live"}'),
    "prometheus_api_v1_read_post": (SNAPPY, _READ_UP),
    "query_builder_write": (_JSON, '{"metric": "room_temperature", "aggregation": "avg"}'),
    "retract": (_JSON, f'{{{_RETRACTION}, "reason": "the sensor was in the sun"}}'),
    "retraction_preview": (_JSON, f"{{{_RETRACTION}}}"),
    "retraction_purge": (_JSON, '{"confirm": "purge %RETRACTION%"}'),
    "rule_create": (_JSON, _RULE),
    "rule_edit": (_JSON, '{"threshold": 26}'),
    "rule_file_put": (_YAML, _RULE_FILE),
    "alertmanager_silence_create": (_JSON, _ALERTMANAGER_SILENCE),
    "silence_create": (_JSON, '{"matchers": "host=\\"db-1\\"", "to_ms": %SOON%000, "comment": "new disk"}'),
    "token_create": (_JSON, '{"name": "dashboard on the wall", "scopes": ["read"], "days": 90}'),
}
