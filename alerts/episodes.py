"""Writes episodes in the transaction of the operation that begins, ends or moves them, and announces each change.

``episodes_changed`` is the one place through which telling learns that episodes changed. Enter by ``follow``.
"""

from collections.abc import Mapping, Sequence

from django.db.models import Q

from alerts.judging.answers import Labels
from alerts.judging.automaton import OK
from alerts.judging.instances.keys import EndReason, InstanceKey, States, Transition
from alerts.judging.lane_plan import Operation
from alerts.judging.reconciliation import EpisodeStatus, Span, reconcile, stretches_of
from alerts.judging.run import Outcome
from alerts.models import Episode, Lane, Rule
from alerts.telling import hook
from spm.events import outbox
from spm.events.outbox import Draft, Place

_WRITTEN = [
    "start_ms",
    "end_ms",
    "status",
    "end_reason",
    "revision",
    "start_value",
    "last_value",
    "merged_into",
    "changed_ms",
]
_BATCH_ROWS = 200  # of one update: databases bound the parameters of a statement


def follow(
    lane: Lane,
    operation: Operation,
    before: States,
    outcome: Outcome,
    changed: set[InstanceKey],
    labels: Mapping[str, Labels],
    *,
    now_ms: int,
) -> None:
    """Bring the episodes of the changed instances in step with an operation of their lane."""
    if not changed:
        return
    rules = hook.rules_with_routing({key.rule for key in changed})
    known = _episodes_of(changed, rules, operation.after_ms)
    transitions: dict[InstanceKey, list[Transition]] = {key: [] for key in changed}
    for each in outcome.transitions:
        if each.key in changed:
            transitions[each.key].append(each)
    writer = _Writer(lane, rules, labels, now_ms)
    for key, own in transitions.items():
        spans = [_span(episode) for episode in known.get(key, ())]
        stretches = stretches_of(before.get(key, OK), own)
        after_ms, position_ms = operation.after_ms, min(lane.position_ms, operation.upto_ms)
        writer.take(key, known.get(key, ()), reconcile(spans, stretches, after_ms=after_ms, position_ms=position_ms))
    writer.write()


def episodes_changed(episodes: Sequence[Episode], *, now_ms: int) -> None:
    """Announce episodes that were created or changed, in the transaction that changed them.

    Every writer of episodes calls this once for each transaction, with the rows that it wrote, each with its rule of
    ``hook.rules_with_routing``. What must be as durable as the episodes (marks for those who are to be notified) is
    written here.
    """
    hook.mark_rows(episodes, now_ms=now_ms)
    by_app: dict[Place, list[Draft]] = {}
    for episode in sorted(episodes, key=lambda each: each.pk):
        place = Place(episode.rule.app.organisation_id, episode.rule.app_id)
        by_app.setdefault(place, []).append(_event(episode))
    for place, drafts in by_app.items():
        outbox.emit(place, drafts, now_ms=now_ms)


def _event(episode: Episode) -> Draft:
    """Write one revision of an episode as an event of the stream."""
    return Draft(
        kind="alert",
        text=f"{episode.rule.name}: {episode.status}",
        at_ms=episode.start_ms if episode.end_ms is None else episode.end_ms,
        event_id=f"episode-{episode.pk}-{episode.revision}",
        key=f"{episode.rule_id} {episode.fingerprint} {episode.aspect}",
        body={
            "episode": episode.pk,
            "revision": episode.revision,
            "rule": episode.rule_id,
            "name": episode.rule.name,
            "labels": episode.labels,
            "aspect": episode.aspect,
            "severity": episode.severity,
            "status": episode.status,
            "reason": episode.end_reason,
            "start_ms": episode.start_ms,
            "end_ms": episode.end_ms,
            "value": episode.last_value,
        },
    )


class _Writer:
    """Collects the changes of an operation and writes them in an order in which one episode at a time is open."""

    def __init__(self, lane: Lane, rules: Mapping[int, Rule], labels: Mapping[str, Labels], now_ms: int) -> None:
        self._lane, self._rules, self._labels, self._now_ms = lane, rules, labels, now_ms
        self._new: list[Episode] = []
        self._changed: list[Episode] = []
        self._merged: list[tuple[Episode, InstanceKey, int]] = []

    def take(self, key: InstanceKey, known: Sequence[Episode], spans: Sequence[Span]) -> None:
        """Take the changed episodes of one instance."""
        by_id = {episode.pk: episode for episode in known}
        for span in spans:
            episode = by_id.get(span.id) if span.id is not None else None
            if episode is None:
                episode = self._begin(key, span)
                self._new.append(episode)
            else:
                episode.revision += 1
                self._changed.append(episode)
            self._set(episode, span)
            if span.host is not None:
                self._merged.append((episode, key, span.host.start_ms))

    def write(self) -> None:
        """Write all changes, and announce them."""
        closed = [episode for episode in self._changed if episode.status != EpisodeStatus.OPEN]
        opened = [episode for episode in self._changed if episode.status == EpisodeStatus.OPEN]
        for part in (closed, opened):  # the rows are there: one statement that overwrites them is the cheapest update
            Episode.objects.bulk_create(
                part, batch_size=_BATCH_ROWS, update_conflicts=True, unique_fields=["id"], update_fields=_WRITTEN
            )
        Episode.objects.bulk_create(self._new, batch_size=_BATCH_ROWS)
        self._link_merged()
        written = [*self._changed, *self._new]
        if written:
            episodes_changed(written, now_ms=self._now_ms)

    def _link_merged(self) -> None:
        for episode, key, start_ms in self._merged:
            same = Episode.objects.filter(rule=key.rule, fingerprint=key.fingerprint, aspect=key.aspect)
            episode.merged_into = same.filter(start_ms=start_ms).exclude(pk=episode.pk).order_by("status").last()
            episode.save(update_fields=["merged_into"])

    def _begin(self, key: InstanceKey, span: Span) -> Episode:
        return Episode(
            rule=self._rules[key.rule],
            fingerprint=key.fingerprint,
            aspect=key.aspect,
            labels=dict(self._labels.get(key.fingerprint, {})),
            severity=self._rules[key.rule].severity,
            found_late=span.end_ms is not None and span.start_ms <= self._lane.position_ms,
            created_ms=self._now_ms,
        )

    def _set(self, episode: Episode, span: Span) -> None:
        episode.start_ms, episode.end_ms, episode.status = span.start_ms, span.end_ms, span.status
        episode.changed_ms = self._now_ms
        episode.end_reason = ""
        if span.stretch is not None:
            episode.merged_into = None
            if span.stretch.start_value is not None:
                episode.start_value = span.stretch.start_value
            episode.last_value = episode.start_value if span.stretch.last_value is None else span.stretch.last_value
            is_over = span.end_ms is not None
            episode.end_reason = (span.stretch.reason or EndReason.RECOVERED) if is_over else ""


def _episodes_of(keys: set[InstanceKey], rules: Mapping[int, Rule], after_ms: int) -> dict[InstanceKey, list[Episode]]:
    """Return the episodes of instances that reach beyond a step."""
    reaches = Q(end_ms=None) | Q(end_ms__gt=after_ms)
    groups: dict[InstanceKey, list[Episode]] = {}
    for row in Episode.objects.filter(reaches, rule__in=rules):
        key = InstanceKey(row.rule_id, row.fingerprint, row.aspect)
        if key in keys:
            row.rule = rules[row.rule_id]
            groups.setdefault(key, []).append(row)
    return groups


def _span(episode: Episode) -> Span:
    return Span(episode.pk, episode.start_ms, episode.end_ms, EpisodeStatus(episode.status))
