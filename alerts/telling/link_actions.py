"""What a signed link of a notification does, once somebody has confirmed it on its page. Each is audited.

Who has the mail may do it: the link names a notification and one purpose, and works for a week.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from alerts.models.telling import Notification, Receiver
from alerts.notify.links import Link, Purpose
from alerts.notify.registry import shown
from alerts.notify.wording import subject
from alerts.telling import actions, limits
from alerts.telling.hook import mark_organisation
from spm.accounts import audit
from spm.limits import HOUR_MS


@dataclass(frozen=True, slots=True)
class LinkTarget:
    """What a link is about: the receiver that it was sent to, and its notification, if it is of one."""

    purpose: Purpose
    receiver: Receiver
    notification: Notification | None
    is_expired: bool

    @property
    def title(self) -> str:
        """What the notification said in its subject."""
        return subject(self.notification.body) if self.notification is not None else str(self.receiver.organisation)

    @property
    def who(self) -> str:
        """The receiver, without what is secret of it."""
        return shown(self.receiver.kind, self.receiver.target)


def target_of(link: Link, now_ms: int) -> LinkTarget | None:
    """Return what a link is about; None if that is no longer there."""
    if link.purpose is Purpose.CONFIRM:
        receiver = Receiver.objects.select_related("organisation").filter(pk=int(link.key)).first()
        return None if receiver is None else LinkTarget(link.purpose, receiver, None, is_expired=False)
    rows = Notification.objects.select_related("receiver__organisation")
    row = rows.filter(key=link.key).first()
    if row is None:
        return None
    is_expired = now_ms > row.created_ms + limits.LINK_MS and link.purpose is not Purpose.STOP
    return LinkTarget(link.purpose, row.receiver, row, is_expired)


def act(target: LinkTarget, now_ms: int) -> str:
    """Do what the link is for, and return a sentence that says what is true now."""
    return _ACTS[target.purpose](target, now_ms)


@transaction.atomic
def _acknowledge(target: LinkTarget, now_ms: int) -> str:
    count = _take(target, now_ms, now_ms + limits.ACKNOWLEDGE_MS)
    return f"Acknowledged for a day: {count}." if count else "Nothing of it is open any more."


@transaction.atomic
def _snooze(target: LinkTarget, now_ms: int) -> str:
    count = _take(target, now_ms, now_ms + limits.SNOOZE_MS)
    return f"You will not hear of it again for an hour: {count}." if count else "Nothing of it is open any more."


@transaction.atomic
def _silence(target: LinkTarget, now_ms: int) -> str:
    assert target.notification is not None, "BUG: a link to silence nothing"
    lines: list[Mapping[str, Any]] = target.notification.body["lines"]
    rules = list(dict.fromkeys((line["name"], line["app_name"]) for line in lines))[: limits.LINK_SILENCES_MAX]
    for name, app in rules:
        actions.add_silence(
            target.receiver.organisation,
            f"alertname={_quoted(name)}, app={_quoted(app)}",
            from_ms=now_ms,
            to_ms=now_ms + HOUR_MS,
            comment=f"by the link of a mail to {target.who}"[:200],
            by=None,
            now_ms=now_ms,
        )
    return f"For an hour nobody is notified that {' and '.join(name for name, _ in rules)} fires."


@transaction.atomic
def _stop(target: LinkTarget, now_ms: int) -> str:
    receiver = target.receiver
    Receiver.objects.filter(pk=receiver.pk).update(confirmed_ms=None)
    audit.record("receiver.stop", target.who, actor=None, organisation=receiver.organisation, name=target.who)
    return f"{target.who} gets no more notifications of {receiver.organisation}."


@transaction.atomic
def _confirm(target: LinkTarget, now_ms: int) -> str:
    receiver = target.receiver
    if Receiver.objects.filter(pk=receiver.pk, confirmed_ms=None).update(confirmed_ms=now_ms):
        audit.record("receiver.confirm", target.who, actor=None, organisation=receiver.organisation, name=target.who)
        mark_organisation(receiver.organisation_id, now_ms=now_ms)
    return f"{target.who} gets notifications of {receiver.organisation} from now on."


def _take(target: LinkTarget, now_ms: int, until_ms: int) -> int:
    assert target.notification is not None, "BUG: a link to acknowledge nothing"
    return actions.take(target.notification, by=target.receiver, until_ms=until_ms, now_ms=now_ms)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


_ACTS: dict[Purpose, Callable[[LinkTarget, int], str]] = {
    Purpose.ACKNOWLEDGE: _acknowledge,
    Purpose.SNOOZE: _snooze,
    Purpose.SILENCE: _silence,
    Purpose.STOP: _stop,
    Purpose.CONFIRM: _confirm,
}
