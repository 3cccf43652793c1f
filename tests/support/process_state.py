"""Empties caches that product code keeps for the lifetime of a process, so that one test does not affect the next.

The product itself never needs this: its caches are bounded, and expire by time where their content may change. What a
process noted about messages (sources, arrivals, rejections, descriptions) is forgotten before each test.
"""

from frontend.presenters import periods
from ingest.senders import principals
from ingest.system_series import source_series
from spm.accounts import quotas, tokens
from tests.support import notes


def forget_tokens() -> None:
    tokens.forget_tokens()


def forget_notes() -> None:
    notes.forget_notes()


def forget_quotas() -> None:
    quotas._cache.clear()


def forget_principals() -> None:
    principals._principals.clear()


def forget_sent_hours() -> None:
    source_series._sent_hours.clear()


def forget_periods() -> None:
    periods._periods.clear()
