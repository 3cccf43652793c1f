"""The WSGI entry point: what gunicorn loads, in each of its workers. It also begins to send the process' own metrics."""

import os
from importlib import import_module

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "spm.settings")

application = get_wsgi_application()
import_module("ingest.own").start("web")  # by name: its models need the application
