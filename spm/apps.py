"""The project as a Django app, and the configurations of other apps that load differently here.

A killed process must be back soon, and imports are most of a start. So no process loads at its start what its first
request, or its kind of work, does not need. The usual recipe imports the Celery application in the project's
``__init__``; here only workers load it, since beat alone sends tasks. ``spm.web.urls`` finds the admin's pages with the
first request that is not a push, instead of Django's ``ready``.

``ChosenStaticFiles`` keeps what no page loads (colour variants, editor support) out of the collected static files.
"""

from django.apps import AppConfig
from django.conf import settings
from django.contrib.admin.apps import SimpleAdminConfig
from django.contrib.staticfiles.apps import StaticFilesConfig

from spm import query


class SpmConfig(AppConfig):
    """The wiring: settings, addresses, Celery, and the commands of ``bin``."""

    name = "spm"
    default = True  # of the several configurations in this module
    verbose_name = "SPM"

    def ready(self) -> None:
        """Configures the store that queries read."""
        query.configure(settings.SPM_STORE_URL)


class Admin(SimpleAdminConfig):
    """Django's admin with our site, which is made when its addresses are asked for."""

    default = False
    default_site = "frontend.admin_site.AdminSite"


class Unfold(AppConfig):
    """Templates and styles of the admin. Unfold's own configuration makes its site, and with it all forms, at once."""

    name = "unfold"
    default = False


class ChosenStaticFiles(StaticFilesConfig):
    """Django's static files without the parts of npm packages that are never served."""

    ignore_patterns = [
        *StaticFilesConfig.ignore_patterns,
        "htmax*",
        "htmx*.min.js*",
        "uPlot.iife*",
        "uPlot.min.css",
        "editors",
        "scripts",
        "skills",
        "*.d.ts",
        "*.cjs.js",
    ]
