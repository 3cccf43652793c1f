"""The entry point of a web process: loads the site and joins its parts.

Loading starts nothing: it may happen in a parent that serves no requests, and threads or a store that such a parent
opens are of no use to its children. ``open_dispatcher`` is called in the process that serves, within its event loop.
"""

import gc
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path

from django.conf import settings
from django.core.wsgi import get_wsgi_application

from spm.clock import SystemClock
from spm.limits import GC_YOUNG_OBJECTS, WEB_CONNECTIONS_MAX
from spm.web.client_address import TrustedProxies
from spm.web.http_protocol import Connections, HttpBounds
from spm.web.http_protocol.connections import allowed_connections
from spm.web.request import Request

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "spm.settings")

gc.disable()  # all that is loaded stays: looking through it again and again is a tenth of a start
pages = get_wsgi_application()
pages.request_class = Request

from frontend import health  # noqa: E402  # its models need the application
from frontend.events.change_watch import ChangeWatch  # noqa: E402
from frontend.events.endpoint import EventEndpoint  # noqa: E402
from frontend.events.positions import PositionStreams  # noqa: E402
from frontend.events.streams import EventStreams  # noqa: E402
from frontend.pages.account.early_refusal import refuse_at_once  # noqa: E402
from ingest.accept.process_acceptor import process_acceptor  # noqa: E402  # its models need the application
from ingest.http.push_app import PushApplication  # noqa: E402
from ingest.http.urls import endpoint_of  # noqa: E402
from ingest.system_series import process_metrics  # noqa: E402
from spm.settings.compilation import Compilation  # noqa: E402
from spm.settings.database_files import hold_database_files  # noqa: E402
from spm.settings.process_memory import (  # noqa: E402
    do_without_pandas,
    keep_intermediate_code_packed,
    trim_heap_regularly,
)
from spm.store.backends import open_backend  # noqa: E402
from spm.web.dispatch import AsgiApplication, Dispatcher, Listener, Site  # noqa: E402
from spm.web.fair_pool import FairPool  # noqa: E402
from spm.web.wsgi_bridge import WsgiApplication  # noqa: E402

keep_intermediate_code_packed()
gc.freeze()  # nor does it need to be looked through later, or copied in a child for that
gc.set_threshold(GC_YOUNG_OBJECTS)
gc.enable()
_clock = SystemClock()


@lru_cache(maxsize=1)
def queries() -> WsgiApplication:
    """Return the application that answers queries with a token without Django's middleware.

    It is loaded on its first use, so that a server without such queries starts without it.
    """
    application: WsgiApplication = import_module("frontend.prometheus.fast_path").FastPath(pages)
    return application


def open_dispatcher() -> Dispatcher:
    """Return the application of this process, and start its threads for metrics and memory."""
    do_without_pandas()
    hold_database_files()
    compilation = Compilation(Path(settings.SPM_DATA))
    compilation.refuse_to_compile()
    health.ask_also("kernels", compilation.check)
    trim_heap_regularly()
    process_metrics.start("web")
    bounds = HttpBounds(
        connections_max=allowed_connections(WEB_CONNECTIONS_MAX),
        address_connections_max=settings.SPM_ADDRESS_CONNECTIONS_MAX,
    )
    connections = Connections(bounds, TrustedProxies.parse(settings.SPM_TRUSTED_PROXIES))

    def open_push_application(pool: FairPool) -> PushApplication:
        return PushApplication(process_acceptor, pool, _clock, check_ready=compilation.check)

    site = Site(endpoint_of, open_push_application, pages, queries, _open_streams, _open_listeners, refuse_at_once)
    return Dispatcher(site, connections, _clock)


def _open_listeners(push: PushApplication) -> Sequence[Listener]:
    port = settings.SPM_OTLP_GRPC_PORT
    if not port:
        return ()
    host = f"[{settings.SPM_BIND}]" if ":" in settings.SPM_BIND else settings.SPM_BIND
    listener: Listener = import_module("ingest.rpc.server").OtlpServer(push, f"{host}:{port}")
    return (listener,)


def _open_streams(pool: FairPool) -> Mapping[str, AsgiApplication]:
    def open_watch() -> ChangeWatch:
        return ChangeWatch(lambda: open_backend(settings.SPM_STORE_URL), _clock)

    return {
        "/api/v1/events": EventEndpoint(EventStreams(open_watch, pool, _clock), PositionStreams(pool, _clock), _clock)
    }
