"""Writes the mails of a noise report into the outbox: one to each mail address that a contact point names for it.

An address that has not agreed to get notifications gets none. Enter by ``queue``.
"""

from collections.abc import Mapping

from django.conf import settings
from django.urls import reverse

from alerts.durations import spell
from alerts.models import Outbox
from alerts.models.noise import NoiseReport, NoisyRule
from alerts.models.telling import DEFAULT_KIND, Notification, Receiver
from alerts.noise import limits
from alerts.notify.links import Purpose, link_url, rule_url
from alerts.notify.login_notices import ACCOUNT_KIND
from alerts.notify.text import one_line
from spm.clock import moment

_NAME_CHARS_MAX = 100  # of a name in a subject
_BODY = """{heading}

{totals}

{rules}
All of it, by what nobody acted on and what began anew: {page}

You get this once a week because a contact point of {organisation} with your address asks for it.
"""


def queue(report: NoiseReport, *, now_ms: int) -> int:
    """Write the mails of a report that is saved, in the transaction that saved it; returns how many."""
    wanted = Receiver.objects.filter(
        organisation=report.organisation_id,
        kind=DEFAULT_KIND,
        confirmed_ms__isnull=False,
        contact_points__wants_report=True,
    )
    subject, body = write(report)
    rows = [
        Outbox(
            kind=ACCOUNT_KIND,
            key=f"noise:{report.pk}:{receiver.pk}",
            payload={"receivers": [receiver.target], "subject": subject, "body": body + _stop(receiver)},
            created_ms=now_ms,
            next_attempt_ms=0,
        )
        for receiver in wanted.distinct().order_by("pk")
    ]
    return len(Outbox.objects.bulk_create(rows))


def write(report: NoiseReport) -> tuple[str, str]:
    """Write the subject and the body of a report."""
    name = one_line(str(report.organisation), _NAME_CHARS_MAX)
    days = f"{moment(report.from_ms):%d %b} to {moment(report.to_ms - 1):%d %b %Y}"
    rows = list(report.noisy_rules.select_related("rule__app")[: limits.MAIL_RULES_MAX])
    app = min(report.organisation.apps.values_list("pk", flat=True), default=0)
    body = _BODY.format(
        heading=f"Alerts of {name}, {days} (UTC)",
        totals=", ".join(_totals(report)) + (". Only the newest notifications are counted." if report.is_cut else "."),
        rules="\n".join(map(_rule_text, rows)),
        page=f"{settings.SPM_BASE_URL}{reverse('alerts:noise')}?app={app}&report={report.pk}",
        organisation=name,
    )
    return f"[SPM] Noise of {name}, {days}: {', '.join(_totals(report)[:2])}", body


def _totals(report: NoiseReport) -> list[str]:
    return [
        _count(report.notifications, "notification"),
        f"{_count(report.alerts, 'alert')} of {_count(report.rules, 'rule')}",
        f"{report.unattended} on which nobody acted",
        f"{report.flaps} began anew within {spell(limits.FLAP_MS)} of their end",
    ]


def _rule_text(row: NoisyRule) -> str:
    name = one_line(f"{row.rule.name} ({row.rule.app.name})")
    numbers = f"{_count(row.notifications, 'notification')}, {_count(row.alerts, 'alert')}"
    lines = [name, f"{numbers}, nobody acted on {row.unattended}, {row.flaps} began anew", rule_url(row.rule_id)]
    lines[2:2] = [_saving_text(row.saving, row.tried_notifications or 0)] if row.saving else []
    return "\n  ".join(lines) + "\n"


def _saving_text(saving: Mapping[str, int], tried: int) -> str:
    return f"with “for {spell(saving['for_ms'])}”: {saving['notifications']} instead of {tried} notifications each"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _stop(receiver: Receiver) -> str:
    """Tell a stranger how to get nothing more: a link of a notification that it got."""
    last = None if receiver.is_member else Notification.objects.filter(receiver=receiver).first()
    return "" if last is None else f"To get nothing more of it: {link_url(Purpose.STOP, last.key)}\n"
