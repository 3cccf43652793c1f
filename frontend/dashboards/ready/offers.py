"""Which ready dashboards suit an app: those whose metrics arrive. Enter by ``offered`` and ``find``."""

from collections.abc import Collection

from frontend.dashboards.ready import hosts, services
from frontend.dashboards.ready.form import ReadyDashboard
from spm.errors import Refused
from spm.query import storage_for
from spm.query.request.batches import METRIC_NAME, Matcher

_SPAN_MS = 7 * 86_400_000  # names of the last week, as all pickers have them

READY: tuple[ReadyDashboard, ...] = (
    hosts.AGENT,
    hosts.TELEGRAF,
    hosts.NODE_EXPORTER,
    hosts.OPENTELEMETRY,
    hosts.COLLECTD,
    services.POSTGRES_AGENT,
    services.POSTGRES_TELEGRAF,
    services.POSTGRES_EXPORTER,
    services.RABBITMQ_AGENT,
    services.RABBITMQ_PLUGIN,
    services.NGINX,
    services.NGINX_EXPORTER,
)


def offered(app_id: int, now_ms: int) -> list[ReadyDashboard]:
    """Return those that suit what an app has received."""
    signs = Matcher(METRIC_NAME, "=~", "|".join(sorted({sign for each in READY for sign in each.signs})))
    names = storage_for(app_id).label_values(METRIC_NAME, [[signs]], now_ms - _SPAN_MS, now_ms)
    return suiting(set(names))


def suiting(names: Collection[str]) -> list[ReadyDashboard]:
    """Return those all of whose signs are among the names of metrics. Pure."""
    return [each for each in READY if all(sign in names for sign in each.signs)]


def find(key: str) -> ReadyDashboard:
    """Return the one with a key; raises ``Refused`` if there is none."""
    for each in READY:
        if each.key == key:
            return each
    raise Refused("there is no such ready dashboard", got=key[:40], wanted=", ".join(each.key for each in READY))
