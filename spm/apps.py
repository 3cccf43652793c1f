"""The project as a Django app; the place where Celery is loaded.

The usual recipe imports the Celery application in the project's ``__init__``. Here that would drag Django and Celery
into every Spark task and every agent, which import ``spm`` too: so ``spm/__init__.py`` stays empty, and ``ready`` loads
the application once Django's registry stands.
"""

from importlib import import_module

from django.apps import AppConfig


class SpmConfig(AppConfig):
    """The wiring: settings, addresses, Celery, and the commands of ``bin``."""

    name = "spm"
    verbose_name = "SPM"

    def ready(self) -> None:
        """Load the Celery application, so that ``shared_task`` finds it."""
        import_module("spm.celery")
