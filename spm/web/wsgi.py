"""The WSGI entry point: what gunicorn loads.

The first request begins to send the process' own metrics. Loading begins nothing: it may happen in a parent that serves
nothing itself, and what such a one opens (threads, a store) is of no use to its children.
"""

import gc
import os
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib import import_module
from typing import Any

from django.core.wsgi import get_wsgi_application

from spm.web.request import Request

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "spm.settings")

gc.disable()  # all that is loaded stays: looking through it again and again is a tenth of a start
_pages = get_wsgi_application()
_pages.request_class = Request
_begin = import_module("ingest.system_series.process_metrics").start  # by name: its models need the application
gc.freeze()  # nor does it need to be looked through later, or copied in a child for that
gc.enable()
_QUERIES = "/prometheus/"


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer one request."""
    _begin("web")
    queries = environ["PATH_INFO"].startswith(_QUERIES) and "HTTP_AUTHORIZATION" in environ
    answer: Iterable[bytes] = (_lean() if queries else _pages)(environ, start_response)
    return answer


@lru_cache(maxsize=1)
def _lean() -> Callable[..., Iterable[bytes]]:
    """Queries with a token go past Django; a server that is asked none starts without what answers them."""
    found: Callable[..., Iterable[bytes]] = import_module("frontend.prometheus.fast_path").Lean(_pages)
    return found
