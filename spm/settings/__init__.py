"""Django's settings, in three rooms: the site, its security, its tasks. ``environment`` reads what they depend on.

``.env.example`` documents every name that can be set. Importing this fails, with one sentence, when a secret is missing
or a value cannot be used.
"""

from spm.settings.security import *  # noqa: F403
from spm.settings.site import *  # noqa: F403
from spm.settings.tasks import *  # noqa: F403
