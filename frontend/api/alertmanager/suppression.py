"""What keeps the open alerts of one app from being told now: silences, maintenance windows, other alerts. Reads only.

Silences are the organisation's. Of an app are those that its alerts alone can match, by ``app="…"``; what a program of
the app writes or ends is of its app. Enter by ``suppressions`` and, for silences, by ``concerns`` and ``is_of_app``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from alerts.models import Episode
from alerts.telling.configuration import read_configuration, view
from alerts.telling.decide.matchers import Matchers, select
from alerts.telling.flush import Covers
from spm.store.matchers import mask

APP_LABEL = "app"


@dataclass(frozen=True, slots=True)
class Suppression:
    """Numbers of silences and of episodes, and reasons, that hold for one alert now."""

    silences: Sequence[int]
    inhibitors: Sequence[int]
    windows: Sequence[str]


def suppressions(organisation: int, episodes: Sequence[Episode], now_ms: int) -> Mapping[int, Suppression]:
    """Return what holds now for each open episode, by its number."""
    configuration, views = read_configuration(organisation, now_ms), [view(each) for each in episodes]
    covers = Covers.of(organisation, replace(configuration, silences=()), views, now_ms)
    silenced: dict[int, list[int]] = {each.id: [] for each in views}
    labels = [each.labels for each in views]
    for silence in (each for each in configuration.silences if each.cover.holds(now_ms)):
        for each, is_chosen in zip(views, select(silence.matchers, labels), strict=True):
            if is_chosen:
                silenced[each.id].append(silence.id)
    return {
        number: Suppression(
            silences,
            [cover.episode for cover in covers.inhibitors.get(number, ()) if cover.holds(now_ms) and cover.episode],
            [cover.reason for cover in covers.mutes[number] if cover.holds(now_ms)],
        )
        for number, silences in silenced.items()
    }


def concerns(matchers: Matchers, app: str) -> bool:
    """Whether alerts of the app of this name may match."""
    return all(bool(mask([app], matcher)[0]) for matcher in matchers if matcher.name == APP_LABEL)


def is_of_app(matchers: Matchers, app: str) -> bool:
    """Whether alerts of this app alone can match."""
    return any((matcher.name, matcher.op, matcher.value) == (APP_LABEL, "=", app) for matcher in matchers)
