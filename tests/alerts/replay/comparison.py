"""Compares what live judging left on record, operation by operation, with what a replay of the operations says."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby

from alerts import journal
from alerts.judging.backtest import Line, Said
from alerts.judging.instances.keys import Transition
from alerts.judging.reconciliation import EpisodeStatus
from alerts.models import AlertEvent, Episode, Lane, Operation

ALWAYS = 1 << 60
Contents = set[tuple[object, ...]]


def differences(lane: Lane, said: Iterator[Said]) -> tuple[int, list[str], Line]:
    """Compare what each operation added and dropped; returns how many did, what differs, and the last line."""
    changes, mismatches, line = 0, list[str](), Line({})
    for (seq, *by_live), each in zip(said_by_live(lane), said, strict=True):
        put, taken = contents(each.transitions), contents(each.replaced)
        by_replay = [put - taken, taken - put]
        if by_replay != by_live:
            mismatches.append(f"operation {seq}: replay {by_replay}, live {by_live}")
        changes += any(by_live)
        line = each.line
    return changes, mismatches, line


def contents(transitions: Sequence[Transition]) -> Contents:
    """Return what is compared of transitions."""
    return {journal._identity(each) for each in transitions}


def said_by_live(lane: Lane) -> Iterator[tuple[int, Contents, Contents]]:
    """Yield the number of each operation of a lane, the transitions that it added and those that it dropped."""
    events = AlertEvent.objects.filter(rule__app=lane.app_id).exclude(seq=0).order_by("pk")
    groups = groupby(events.iterator(), key=lambda event: event.seq)
    dropped: dict[int, Contents] = defaultdict(set)
    seq, group = next(groups, (0, iter(())))
    for own in Operation.objects.filter(lane=lane).order_by("seq").values_list("seq", flat=True):
        added: Contents = set()
        if seq == own:
            for event in group:
                content = journal._content(event)
                added.add(content)
                if event.superseded_seq is not None:
                    dropped[event.superseded_seq].add(content)
            seq, group = next(groups, (0, iter(())))
        yield own, added, dropped.pop(own, set())
    assert (seq, dropped) == (0, {}), "a transition of an operation that is not there"


def episodes_of(line: Line) -> list[tuple[object, ...]]:
    """Return the stretches of firing that a line says."""
    return sorted((key, each.start_ms, each.end_ms, each.reason or "") for key, each in line.stretches())


def written_episodes() -> list[tuple[object, ...]]:
    """Return the episodes of live judging that are neither void nor merged."""
    rows = Episode.objects.filter(status__in=(EpisodeStatus.OPEN, EpisodeStatus.ENDED))
    keys = ((row, (row.rule_id, row.fingerprint, row.aspect)) for row in rows)
    return sorted((key, row.start_ms, row.end_ms, row.end_reason) for row, key in keys)
