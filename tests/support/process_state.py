"""Empties caches that product code keeps for the lifetime of a process, so that one test does not affect the next.

The product itself never needs this: its caches are bounded, and expire by time where their content may change.
"""

from ingest.accept import arrivals, descriptions, rejections
from ingest.senders import principals
from ingest.system_series import source_series
from spm.accounts import quotas, sources, tokens


def forget_tokens() -> None:
    tokens._principals.clear()


def forget_sources() -> None:
    sources._written.clear()


def forget_quotas() -> None:
    quotas._cache.clear()


def forget_arrivals() -> None:
    arrivals._written.clear()


def forget_descriptions() -> None:
    descriptions._written.clear()
    descriptions._throttle.reset()


def forget_rejections() -> None:
    rejections._throttle.reset()


def forget_principals() -> None:
    principals._principals.clear()


def forget_sent_hours() -> None:
    source_series._sent_hours.clear()
