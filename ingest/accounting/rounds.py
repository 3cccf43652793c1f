"""Chooses the apps whose watermarks are advanced: those with recent messages every time, all others now and then.

Enter by ``run_round``. Recent messages are known from the sources in the database; so ten thousand apps of which a
hundred send cost a hundred reads, and some fifty more for what a process that died left behind elsewhere. A round has a
budget of time; apps that it does not reach are likely to be first in the next.
"""

import logging
from collections.abc import Sequence

from ingest.accounting.passed_batches import PASSED
from ingest.accounting.watermark_keeper import KeepResult, advance_watermarks
from spm import limits
from spm.accounts.models import App
from spm.clock import Clock, moment
from spm.errors import SpmError
from spm.store.backends.base import Backend
from spm.store.ledger.commit_columns import CommitCellCache

_LOG = logging.getLogger(__name__)
_CELLS = CommitCellCache()  # most rows of one round were there in the one before
_STEP = 0x9E3779B1  # spreads the first apps of rounds over all apps


def run_round(store: Backend, clock: Clock) -> KeepResult:
    """Advance the watermarks of this round's apps."""
    end, result = clock.monotonic() + limits.KEEP_BUDGET_S, KeepResult()
    for app in due_apps(clock.now_ms()):
        if clock.monotonic() > end:
            break
        try:
            result = result.plus(advance_watermarks(store, app, clock.now_ms(), cells=_CELLS, passed=PASSED))
        except SpmError as error:  # of one app; the next round tries again
            _LOG.warning("the watermarks of app %d stay where they are: %s", app, error)
    return result


def due_apps(now_ms: int) -> Sequence[int]:
    """Return the apps of this round, in its order."""
    tick = now_ms // (limits.KEEP_EVERY_S * 1000)
    since = moment(now_ms - limits.KEEP_NEWS_MS)
    live = App.objects.filter(going=None).order_by()
    recent = set(live.filter(sources__last_seen__gte=since).values_list("pk", flat=True).distinct())
    turn = {app for app in live.values_list("pk", flat=True) if (app + tick) % limits.KEEP_ROUND == 0}
    apps = sorted(recent | turn)
    first = tick * _STEP % len(apps) if apps else 0
    return apps[first:] + apps[:first]
