"""Writes and deletes policies, maintenance windows and inhibitions.

Each change is checked, audited, and in force at once. Admin, pages and REST make changes by this alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from alerts.models.telling import EscalationStep, Inhibition, MuteTiming, Policy
from alerts.telling import limits
from alerts.telling.hook import mark_organisation
from alerts.telling.settings.checks import Setting, check, check_escalation
from spm.accounts import audit
from spm.accounts.models import Organisation
from spm.errors import LimitExceeded, Refused


@transaction.atomic
def write(row: Setting, values: Mapping[str, Any], *, by: User, now_ms: int) -> None:
    """Give the row these values and store it; raises ``BadQuery`` with what is wrong, or ``LimitExceeded``.

    Writers of one organisation come one after the other, also those who delete, so that two make no ring and pass
    no bound. A row that was deleted meanwhile is ``Refused``: to store it would make it anew.
    """
    _store(row, values, by)
    mark_organisation(row.organisation_id, now_ms=now_ms)


@transaction.atomic
def write_policy(
    policy: Policy, values: Mapping[str, Any], escalation: Sequence[tuple[int, int]], *, by: User, now_ms: int
) -> None:
    """Write a policy as ``write`` does, with these steps of escalation: after how long, and the contact point."""
    check_escalation(policy, escalation)
    _store(policy, values, by)
    policy.escalation.all().delete()
    EscalationStep.objects.bulk_create(
        EscalationStep(policy=policy, after_ms=after_ms, contact_point_id=point) for after_ms, point in escalation
    )
    mark_organisation(policy.organisation_id, now_ms=now_ms)


@transaction.atomic
def delete(row: Setting, *, by: User, now_ms: int) -> None:
    """Delete the row; a policy goes with those below it."""
    organisation, name = Organisation.objects.select_for_update(no_key=True).get(pk=row.organisation_id), str(row)
    row.delete()
    audit.record(_action(row, "delete"), name, actor=by, organisation=organisation)
    mark_organisation(organisation.pk, now_ms=now_ms)


def _store(row: Setting, values: Mapping[str, Any], by: User) -> None:
    organisation = Organisation.objects.select_for_update(no_key=True).get(pk=row.organisation_id)
    if row.pk is not None and not type(row)._default_manager.filter(pk=row.pk).exists():
        raise Refused("it was deleted meanwhile", remedy="Create another.")
    for name, value in values.items():
        setattr(row, name, value)
    check(row)
    _check_count(row)
    row.save()
    audit.record(_action(row, "write"), str(row), actor=by, organisation=organisation)


def _check_count(row: Setting) -> None:
    most = {Policy: limits.POLICIES_MAX, MuteTiming: limits.MUTE_TIMINGS_MAX, Inhibition: limits.INHIBITIONS_MAX}
    others = type(row)._default_manager.filter(organisation=row.organisation_id).exclude(pk=row.pk)
    if others.count() >= most[type(row)]:
        raise LimitExceeded(
            f"too many {row._meta.verbose_name_plural}", got=others.count() + 1, wanted=f"at most {most[type(row)]}"
        )


def _action(row: Setting, verb: str) -> str:
    return f"{row._meta.model_name}.{verb}"
