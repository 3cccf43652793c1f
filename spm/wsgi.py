"""The WSGI entry point: what gunicorn loads.

The first request begins to send the process' own metrics. Loading begins nothing: it may happen in a parent that serves
nothing itself, and what such a one opens (threads, a store) is of no use to its children.
"""

import gc
import os
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "spm.settings")

gc.disable()  # all that is loaded stays: looking through it again and again is a tenth of a start
_answer = get_wsgi_application()
_begin = import_module("ingest.own").start  # by name: its models need the application
gc.freeze()  # nor does it need to be looked through later, or copied in a child for that
gc.enable()


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer one request."""
    _begin("web")
    answer: Iterable[bytes] = _answer(environ, start_response)
    return answer
