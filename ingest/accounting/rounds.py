"""Which apps the keeper of marks looks at: those with news every time, all others now and then.

Enter by ``make``. News are sources that were heard of lately, by the database; so ten thousand apps of which a hundred
send cost a hundred looks, and some fifty more for what a process that died has left behind elsewhere. A round has a
budget of time; what it does not come to is likely to be first in the next.
"""

import logging
from collections.abc import Sequence

from ingest.accounting.watermark_keeper import Kept, keep
from spm import limits
from spm.accounts.models import App
from spm.clock import Clock, moment
from spm.errors import SpmError
from spm.store.backends.base import Backend
from spm.store.ledger.commit_columns import CommitCellCache

_LOG = logging.getLogger(__name__)
_CELLS = CommitCellCache()  # most rows of one round were there in the one before
_STEP = 0x9E3779B1  # spreads the beginnings of rounds over the apps


def make(store: Backend, clock: Clock) -> Kept:
    """One round."""
    end, kept = clock.monotonic() + limits.KEEP_BUDGET_S, Kept()
    for app in due(clock.now_ms()):
        if clock.monotonic() > end:
            break
        try:
            kept = kept.plus(keep(store, app, clock.now_ms(), cells=_CELLS))
        except SpmError as error:  # of one app; the next round looks again
            _LOG.warning("the marks of app %d stay where they are: %s", app, error)
    return kept


def due(now_ms: int) -> Sequence[int]:
    """The apps of this round, in its order."""
    tick = now_ms // (limits.KEEP_EVERY_S * 1000)
    since = moment(now_ms - limits.KEEP_NEWS_MS)
    there = App.objects.filter(going=None).order_by()
    news = set(there.filter(sources__last_seen__gte=since).values_list("pk", flat=True).distinct())
    turn = {app for app in there.values_list("pk", flat=True) if (app + tick) % limits.KEEP_ROUND == 0}
    apps = sorted(news | turn)
    first = tick * _STEP % len(apps) if apps else 0
    return apps[first:] + apps[:first]
