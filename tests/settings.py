"""The product's settings for tests: throw-away data folder, known secrets, fast passwords, unhashed static files.

Each test process has a data folder of its own, also under pytest-xdist; programs that a test starts inherit it. Nothing
of the product's behaviour is switched off here.
"""

import atexit
import os
import shutil
import tempfile

_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "alone")
if os.environ.get("SPM_TEST_DATA_OF") != _WORKER:
    _folder = tempfile.mkdtemp(prefix="spm-test-")
    atexit.register(shutil.rmtree, _folder, ignore_errors=True)
    os.environ["SPM_TEST_DATA_OF"] = _WORKER
    os.environ["SPM_DATA"] = _folder
os.environ["SPM_DOTENV"] = os.devnull  # what a developer has set for the product is not what is tested
os.environ["SPM_SECRET_KEY"] = "only for tests"
os.environ["SPM_PEPPER"] = "pepper only for tests"

from spm.settings import *  # noqa: E402, F403

STATIC_ROOT.mkdir(exist_ok=True)  # noqa: F405  # whitenoise warns of a folder that is not there
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
