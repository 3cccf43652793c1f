"""Answers RabbitMQ's questions about agents (its plug-in ``rabbitmq_auth_backend_http``): who may connect, and do what.

    POST /broker/SECRET/user      username = token id, password = token        → allow | deny
    POST /broker/SECRET/vhost     the one virtual host
    POST /broker/SECRET/resource  write to the agents' exchange; nothing is declared, deleted or read
    POST /broker/SECRET/topic     with a routing key of the token's own

Only the broker knows the secret (``SPM_BROKER_SECRET``); a question that came through a proxy, or with another secret,
gets 404. ``is_allowed`` decides; the view ``answer_broker`` reads the form and answers.
"""

import hmac
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from ingest.routing import AGENTS, split_agent_key
from ingest.senders import principals
from spm.accounts import tokens

ALLOW, DENY = "allow", "deny"
QUESTIONS = ("user", "vhost", "resource", "topic")
SCOPE = "ingest"


@csrf_exempt
@require_POST
def answer_broker(request: HttpRequest, secret: str, question: str) -> HttpResponse:
    """Answer one question of the broker."""
    own = settings.SPM_BROKER_SECRET
    forwarded = "X-Forwarded-For" in request.headers or "Forwarded" in request.headers
    if not own or forwarded or not hmac.compare_digest(secret.encode(), own.encode()):
        raise Http404
    vhost = unquote(urlsplit(settings.SPM_AMQP_URL).path.removeprefix("/")) or "/"
    answer = ALLOW if is_allowed(question, request.POST.dict(), vhost) else DENY
    return HttpResponse(answer, content_type="text/plain")


def is_allowed(question: str, form: Mapping[str, object], vhost: str) -> bool:
    """Whether the sender ``form["username"]`` may do this. Anything that is not named here is denied."""
    fields = {name: str(value) for name, value in form.items()}
    token_id = fields.get("username", "")
    if question == "user":
        secret = fields.get("password", "")
        return secret.startswith(f"{token_id}_") and tokens.authenticate(secret, SCOPE) is not None
    if fields.get("vhost") != vhost or principals.of_token_id(token_id, SCOPE) is None:
        return False
    if question == "vhost":
        return True
    writes = (fields.get("name"), fields.get("permission")) == (AGENTS, "write")
    if question == "topic":
        return writes and split_agent_key(fields.get("routing_key", ""))[0] == token_id
    return question == "resource" and writes and fields.get("resource") == "exchange"
