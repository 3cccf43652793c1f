"""Checks a policy, a maintenance window or an inhibition before it is written: whether telling could read it.

Nothing is changed here. Enter by ``check``.
"""

from collections.abc import Mapping, Sequence

from alerts.models.telling import ContactPoint, Inhibition, MuteTiming, Policy
from alerts.telling import limits
from alerts.telling.decide.matchers import read_matchers
from alerts.telling.decide.windows import check_timing
from spm.errors import BadQuery

Setting = Policy | MuteTiming | Inhibition
_LABEL_CHARS_MAX = 200


def check(row: Setting) -> None:
    """Raise ``BadQuery`` with what is wrong with the row as it is to be written."""
    if isinstance(row, Policy):
        _check_policy(row)
    elif isinstance(row, MuteTiming):
        read_matchers(row.matchers)
        check_timing(row.cron, row.zone, row.duration_ms)
    else:
        read_matchers(row.source)
        read_matchers(row.target)
        _check_labels("equal", row.equal)


def check_escalation(policy: Policy, steps: Sequence[tuple[int, int]]) -> None:
    """Raise ``BadQuery`` with what is wrong with steps of escalation: after how long, and the contact point."""
    times = [after_ms for after_ms, _ in steps]
    least_ms, most_ms = limits.POLICY_INTERVAL_MS_MIN, limits.POLICY_SPAN_MS_MAX
    if len(steps) > limits.ESCALATION_STEPS_MAX or times != sorted(set(times)):
        raise BadQuery(f"escalation has at most {limits.ESCALATION_STEPS_MAX} steps, each later than the one before")
    if any(not least_ms <= after_ms <= most_ms for after_ms in times):
        raise BadQuery(f"a step of escalation comes after {least_ms} to {most_ms} ms")
    points = ContactPoint.objects.filter(organisation=policy.organisation_id)
    if not {point for _, point in steps} <= set(points.values_list("pk", flat=True)):
        raise BadQuery("a contact point of the escalation is missing or belongs to another organisation")


def _check_policy(policy: Policy) -> None:
    read_matchers(policy.matchers)
    _check_labels("group_by", policy.group_by)
    _check_waits(policy)
    points = ContactPoint.objects.filter(organisation=policy.organisation_id, pk=policy.contact_point_id)
    parents = dict(Policy.objects.filter(organisation=policy.organisation_id).values_list("pk", "parent_id"))
    if not points.exists() or not {policy.parent_id} <= {None, *parents}:
        raise BadQuery("the parent and the contact point must not be missing or belong to another organisation")
    _check_place(policy, parents)


def _check_labels(name: str, labels: object) -> None:
    if not isinstance(labels, list) or not all(isinstance(each, str) and each for each in labels):
        raise BadQuery(f'{name} is a list of label names, such as ["host"]')
    if len(labels) > limits.POLICY_GROUP_BY_MAX or any(len(each) > _LABEL_CHARS_MAX for each in labels):
        raise BadQuery(f"{name} has at most {limits.POLICY_GROUP_BY_MAX} names of {_LABEL_CHARS_MAX} characters each")


def _check_waits(policy: Policy) -> None:
    least_ms, most_ms = limits.POLICY_INTERVAL_MS_MIN, limits.POLICY_SPAN_MS_MAX
    if not 0 <= policy.wait_ms <= most_ms:
        raise BadQuery(f"a group waits for 0 to {most_ms} ms, and not for {policy.wait_ms}")
    if not least_ms <= policy.interval_ms <= policy.repeat_ms <= most_ms:
        raise BadQuery(
            f"the interval is at least {least_ms} ms, the repetition not shorter and at most {most_ms} ms; "
            f"got {policy.interval_ms} and {policy.repeat_ms}"
        )


def _check_place(policy: Policy, parents: Mapping[int, int | None]) -> None:
    """Refuse a ring, and a tree that is too deep with the policy where it is to be."""
    if policy.pk in _above(policy.parent_id, parents):
        raise BadQuery("a policy cannot be below itself")
    new = {**parents, policy.pk or 0: policy.parent_id}
    if any(len(_above(number, new)) > limits.POLICY_DEPTH_MAX for number in new):
        raise BadQuery(f"policies stand at most {limits.POLICY_DEPTH_MAX} deep below one another")


def _above(number: int | None, parents: Mapping[int, int | None]) -> list[int]:
    """Return the policy and those above it; one more than may be, if there are more or it is in a ring."""
    chain: list[int] = []
    while number is not None and len(chain) <= limits.POLICY_DEPTH_MAX:
        chain.append(number)
        number = parents.get(number)
    return chain
