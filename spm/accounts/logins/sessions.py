"""Sessions in the database, each with an end that nothing puts off: ``SESSION_COOKIE_AGE`` after its login.

Django's own sessions begin anew whenever something is saved in them, so one that is used now and then never ends. Enter
by ``SessionStore``, which the setting ``SESSION_ENGINE`` names by its module.
"""

from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.sessions.backends import db

from spm.clock import SystemClock, moment

_BEGUN = "begun_ms"  # when the session began: with a login, or with the right password for a new one
SHORT_MS = "short_ms"  # the lifetime of one that must end sooner than others
_clock = SystemClock()


class SessionStore(db.SessionStore):
    """Django's session in the database, with an absolute lifetime.

    A session that an older version made does not say when it began: until it is next saved, its row says when it ends;
    from then on it counts as begun at that moment.
    """

    def cycle_key(self) -> None:
        """Begin anew under another key, which is what a login and a new password do."""
        self[_BEGUN] = _clock.now_ms()
        super().cycle_key()

    def create_model_instance(self, data: dict[str, Any]) -> Any:
        """Return the row of this session, which ends with its lifetime."""
        data.setdefault(_BEGUN, _clock.now_ms())
        return super().create_model_instance(data)

    def get_expiry_date(self, **_of_django: Any) -> datetime:
        """Return when this session ends, whatever is saved in it."""
        begun_ms: int = self.get(_BEGUN, _clock.now_ms())
        longest_ms = 1_000 * settings.SESSION_COOKIE_AGE
        return moment(begun_ms + min(longest_ms, self.get(SHORT_MS, longest_ms)))

    def get_expiry_age(self, **_of_django: Any) -> int:
        """Return the seconds until this session ends; its cookie has the same end."""
        return max(0, int(self.get_expiry_date().timestamp() - _clock.now_ms() / 1_000))
