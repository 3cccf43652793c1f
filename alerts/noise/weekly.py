"""Makes each organisation's noise report of a week once, some hours after the week, and mails it to those who want it.

A report, its rules and its mails are written in one transaction, and there is one report for each week: a round that is
killed or doubled makes none twice. A week without alerts is reported, and not mailed. Enter by ``make_due``.
"""

import logging

from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef

from alerts.models import Rule
from alerts.models.noise import NoiseReport, NoisyRule
from alerts.noise import limits, mails
from alerts.noise.counts import count_noise
from alerts.noise.savings import try_longer
from spm.accounts.models import Organisation
from spm.clock import Clock

log = logging.getLogger("spm.alerts")


def make_due(clock: Clock) -> int:
    """Make the reports of the last week that are missing, as many as a round has time for; returns how many."""
    to_ms = week_end_ms(clock.now_ms() - limits.READY_MS)
    begun_s, count = clock.monotonic(), 0
    for number in _missing(to_ms):
        if clock.monotonic() - begun_s > limits.ROUND_S:
            break
        try:
            make(number, to_ms, clock=clock)
            count += 1
        except IntegrityError:  # another process has made it, or the organisation was deleted
            log.info("the noise report of organisation %d was not written", number)
        except Exception:  # a loop's top: the other organisations get theirs
            log.exception("the noise report of organisation %d could not be made", number)
    return count


def make(organisation: int, to_ms: int, *, clock: Clock) -> NoiseReport:
    """Make the report of the week that ended at a time, and queue its mails."""
    now_ms = clock.now_ms()
    report, rows = count_noise(organisation, to_ms - limits.WEEK_MS, to_ms, now_ms=now_ms)
    try_longer(report, rows, clock=clock)
    with transaction.atomic():
        report.save()
        NoisyRule.objects.bulk_create(rows)
        if report.alerts or report.notifications:
            mails.queue(report, now_ms=now_ms)
    return report


def week_end_ms(at_ms: int) -> int:
    """Return the end of the last whole week before a time: a Monday, at midnight UTC."""
    return (at_ms - limits.MONDAY_MS) // limits.WEEK_MS * limits.WEEK_MS + limits.MONDAY_MS


def _missing(to_ms: int) -> list[int]:
    """Return the organisations with rules and without a report of the week."""
    rules = Rule.objects.filter(app__organisation=OuterRef("pk"), created_ms__lt=to_ms)
    reports = NoiseReport.objects.filter(organisation=OuterRef("pk"), to_ms=to_ms)
    rows = Organisation.objects.filter(Exists(rules), ~Exists(reports), going=None).order_by("pk")
    return list(rows.values_list("pk", flat=True)[: limits.BATCH_ROWS])
