"""Static files as they are served: bundled, hashed, compressed."""

from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.test import override_settings

PLAIN = {"BACKEND": "django.core.files.storage.FileSystemStorage"}


def settings_of(folder: Path) -> Any:
    """Settings with which the product takes its static files from this folder: a context."""
    bundled = {"BACKEND": "frontend.bundles.BundledStaticFiles"}
    return override_settings(STATIC_ROOT=folder, STORAGES={"default": PLAIN, "staticfiles": bundled})


def collect(folder: Path) -> Path:
    """Collect the static files into an empty folder, which is returned."""
    with settings_of(folder):
        call_command("collectstatic", interactive=False, verbosity=0)
    return folder
