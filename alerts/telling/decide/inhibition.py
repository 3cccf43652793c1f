"""Inhibition: an alert that explains others keeps them from being told.

Only an episode *earlier in a strict order* (worse, then older, then the lower id) inhibits, so that no two episodes
silence each other, and no ring of them can be. An episode that is itself muted inhibits all the same. Enter by
``inhibitors``.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from alerts.telling import limits
from alerts.telling.decide.covers import Cover
from alerts.telling.decide.episodes import EpisodeView, Level
from alerts.telling.decide.matchers import Matchers, select


@dataclass(frozen=True, slots=True)
class Inhibition:
    """Alerts that match ``source`` inhibit those that match ``target``, if the labels named by ``equal`` agree."""

    id: int
    source: Matchers
    target: Matchers
    equal: tuple[str, ...]


def inhibitors(
    inhibitions: Sequence[Inhibition], targets: Sequence[EpisodeView], sources: Sequence[EpisodeView]
) -> dict[int, list[Cover]]:
    """Return, by the id of each target that has any, the stretches of time in which a source inhibits it."""
    covers: dict[int, list[Cover]] = defaultdict(list)
    real = [each for each in sources if each.level is not Level.VOID and not each.merged]
    for inhibition in inhibitions:
        index = _by_labels(real, inhibition)
        is_target = select(inhibition.target, [each.labels for each in targets])
        for target in (each for each, chosen in zip(targets, is_target, strict=True) if chosen):
            same = index.get(_values(target.labels, inhibition.equal), [])
            covers[target.id] += [_cover(source) for source in same if precedes(source, target)]
    return {target: each for target, each in covers.items() if each}


def precedes(source: EpisodeView, target: EpisodeView) -> bool:
    """Whether the source stands before the target in the strict order of inhibition."""
    return source.rank < target.rank


def _by_labels(sources: Sequence[EpisodeView], inhibition: Inhibition) -> dict[tuple[str, ...], list[EpisodeView]]:
    index: dict[tuple[str, ...], list[EpisodeView]] = defaultdict(list)
    is_source = select(inhibition.source, [each.labels for each in sources])
    for source, chosen in zip(sources, is_source, strict=True):
        if chosen:
            index[_values(source.labels, inhibition.equal)].append(source)
    return index


def _values(labels: Mapping[str, str], names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(labels.get(name, "") for name in names)


def _cover(source: EpisodeView) -> Cover:
    to_ms = None if source.end_ms is None else source.end_ms + limits.INHIBITION_LINGER_MS
    return Cover(source.start_ms, to_ms, f"inhibited by {source.name} #{source.id}", source.id)
