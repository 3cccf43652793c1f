"""The project as a Django app; the place where Celery is loaded.

The usual recipe imports the Celery application in the project's ``__init__``. Here that would drag Django and Celery
into every Spark task and every agent, which import ``spm`` too: so ``spm/__init__.py`` stays empty, and ``ready`` loads
the application once Django's registry stands.

``ChosenStaticFiles`` keeps what no page loads (colour variants, editor support) out of the collected static files.
"""

from importlib import import_module

from django.apps import AppConfig
from django.conf import settings
from django.contrib.staticfiles.apps import StaticFilesConfig

from spm import query


class SpmConfig(AppConfig):
    """The wiring: settings, addresses, Celery, and the commands of ``bin``."""

    name = "spm"
    default = True  # two configurations stand in this module: without this Django takes neither
    verbose_name = "SPM"

    def ready(self) -> None:
        """Load the Celery application, so that ``shared_task`` finds it, and name the store to be read."""
        import_module("spm.celery")
        query.configure(settings.SPM_STORE_URL)


class ChosenStaticFiles(StaticFilesConfig):
    """Django's static files without the parts of npm packages that are never served."""

    ignore_patterns = [
        *StaticFilesConfig.ignore_patterns,
        "pico.[!mc]*.css",
        "pico.c[oy]*",
        "pico.classless.[!m]*",
        "htmax*",
        "editors",
        "scripts",
        "skills",
        "*.d.ts",
        "*.cjs.js",
    ]
