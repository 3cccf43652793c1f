"""What RabbitMQ asks about agents (its plug-in ``rabbitmq_auth_backend_http``): may they come in, and do what?

    POST /broker/SECRET/user      username = token id, password = token        → allow | deny
    POST /broker/SECRET/vhost     that one virtual host
    POST /broker/SECRET/resource  write to the agents' exchange; nothing is made, deleted or read
    POST /broker/SECRET/topic     with a routing key of the token's own

The secret (``SPM_BROKER_SECRET``) is known to the broker alone; a question that came through a proxy, or with another
secret, finds no page here. ``allowed`` decides; the view reads the form and says the word.
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
def ask(request: HttpRequest, secret: str, question: str) -> HttpResponse:
    """One question of the broker's."""
    own = settings.SPM_BROKER_SECRET
    forwarded = "X-Forwarded-For" in request.headers or "Forwarded" in request.headers
    if not own or forwarded or not hmac.compare_digest(secret.encode(), own.encode()):
        raise Http404
    vhost = unquote(urlsplit(settings.SPM_AMQP_URL).path.removeprefix("/")) or "/"
    return HttpResponse(ALLOW if allowed(question, request.POST.dict(), vhost) else DENY, content_type="text/plain")


def allowed(question: str, about: Mapping[str, object], vhost: str) -> bool:
    """Whether the sender ``about["username"]`` may do what is asked about. Anything not named here is refused."""
    said = {name: str(value) for name, value in about.items()}
    token_id = said.get("username", "")
    if question == "user":
        secret = said.get("password", "")
        return secret.startswith(f"{token_id}_") and tokens.authenticate(secret, SCOPE) is not None
    if said.get("vhost") != vhost or principals.of_token_id(token_id, SCOPE) is None:
        return False
    if question == "vhost":
        return True
    writes = (said.get("name"), said.get("permission")) == (AGENTS, "write")
    if question == "topic":
        return writes and split_agent_key(said.get("routing_key", ""))[0] == token_id
    return question == "resource" and writes and said.get("resource") == "exchange"
