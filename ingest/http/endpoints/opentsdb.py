"""The endpoint of OpenTSDB: points as JSON, answered as OpenTSDB does.

    POST /api/put                      → 204; 400 and OpenTSDB's error if something was rejected
    POST /api/put?summary, ?details    → 200 or 400 and the counts, with ``details`` also the rejected points

The points that were not rejected are stored. Over the rate the answer is 503: Telegraf drops what is answered with 4xx.
Enter by ``opentsdb_endpoint``.
"""

import msgspec

from ingest.http.answers import headline
from ingest.http.endpoints.base import AcceptedMessage, Plan, PushEndpoint
from ingest.http.exchange import PushAnswer, PushRequest, json_answer
from ingest.protocols.json import opentsdb
from spm.errors import Explained
from spm.wire import Rejection

_PLAN = Plan(
    "opentsdb", lambda body: opentsdb.parse(body.raw, now_ms=body.now_ms, over_quota=body.over_quota), unit="s"
)


def opentsdb_endpoint(name: str) -> PushEndpoint:
    """Return the endpoint of points as OpenTSDB takes them."""
    return PushEndpoint(name, lambda _request: _PLAN, _respond, error_format=_as_error, too_fast=503)


def _as_error(_request: PushRequest, status: int, error: Explained) -> PushAnswer:
    return json_answer({"error": {"code": status, "message": error.what, "details": str(error)}}, status)


def _respond(request: PushRequest, accepted: AcceptedMessage) -> PushAnswer:
    parsed, headers = accepted.parsed, {"X-Message-Id": accepted.message_id.hex()}
    details = bool(request.query_string and request.parameters("details"))
    if details or (request.query_string and request.parameters("summary")):
        counts: dict[str, object] = {"success": len(parsed.ts), "failed": parsed.rejected}
        errors = {"errors": [_error_of(each) for each in parsed.rejections]} if details else {}
        return json_answer({**counts, **errors}, 400 if parsed.rejected else 200, headers)
    if not parsed.rejected:
        return PushAnswer(204, headers=headers)
    message = "One or more data points had errors"
    return json_answer(
        {"error": {"code": 400, "message": message, "details": f"{headline(parsed, 'point')}; see ?details"}},
        400,
        headers,
    )


def _error_of(rejection: Rejection) -> dict[str, object]:
    """Return one rejected point, as it was sent if it is short enough to be whole, with its number and the reason."""
    try:
        point = msgspec.json.decode(rejection.example)
    except msgspec.MsgspecError:
        point = rejection.example
    if isinstance(point, dict) and "time" in point:
        point = {**{name: value for name, value in point.items() if name != "time"}, "timestamp": point["time"]}
    return {"datapoint": point, "error": f"point {rejection.line}: {rejection.reason}"}
