"""Django's settings in five modules: the site, its security, people's accounts, its tasks, work in the background.
``environment`` reads their variables.

``.env.example`` documents every variable. The import fails with one sentence when a secret is missing or a value cannot
be used.
"""

from spm.settings.accounts import *  # noqa: F403
from spm.settings.security import *  # noqa: F403
from spm.settings.site import *  # noqa: F403
from spm.settings.tasks import *  # noqa: F403
from spm.settings.work import *  # noqa: F403
