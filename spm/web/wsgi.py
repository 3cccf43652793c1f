"""The WSGI entry point that gunicorn loads.

The first request starts the thread that sends the process' own metrics. Loading starts nothing: it may happen in a
parent that serves no requests, and threads or a store that such a parent opens are of no use to its children.
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

from ingest.system_series import process_metrics  # noqa: E402  # its models need the application

gc.freeze()  # nor does it need to be looked through later, or copied in a child for that
gc.enable()
_QUERIES = "/prometheus/"


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answers one request."""
    process_metrics.start("web")
    queries = environ["PATH_INFO"].startswith(_QUERIES) and "HTTP_AUTHORIZATION" in environ
    answer: Iterable[bytes] = (_fast_path() if queries else _pages)(environ, start_response)
    return answer


@lru_cache(maxsize=1)
def _fast_path() -> Callable[..., Iterable[bytes]]:
    """Returns the application that answers queries with a token without Django's middleware.

    It is loaded on its first use, so that a server without such queries starts without it.
    """
    application: Callable[..., Iterable[bytes]] = import_module("frontend.prometheus.fast_path").FastPath(_pages)
    return application
