"""The WSGI entry point: what gunicorn loads. Nothing is decided here."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "spm.settings")

application = get_wsgi_application()
