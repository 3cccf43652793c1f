"""Presents the figures of the whole site for staff: what waits, what failed, what is late, each with its bound. Pure.

A tile over its bound is alarming, and stands before the others. Enter by ``tiles_of``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from spm.telemetry import MetricValue

_LAG_S_MAX = 60  # a worker that lives writes within seconds
_RUN_AGE_S_MAX = 26 * 3_600  # of each kind: the longest plan is a day
_BACKUP_AGE_S_MAX = 26 * 3_600


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure; ``page`` is the name of the page of the admin that lists what it counts."""

    title: str
    text: str
    is_alarming: bool
    page: str
    meaning: str


def tiles_of(figures: Sequence[MetricValue], now_ms: int) -> list[Tile]:
    """Make the tiles of a console, those over their bound first."""
    unsettled = _sum(figures, "spm_app_samples", outcome="unsettled")
    lag_s = max(_values(figures, "spm_app_mark_lag_seconds"), default=0.0)
    dead, unsent = _sum(figures, "spm_app_dead_letters"), _sum(figures, "spm_alerts_outbox_messages", state="waiting")
    unsendable = _sum(figures, "spm_alerts_outbox_messages", state="dead")
    failing = _sum(figures, "spm_alerts_rules_failing")
    damaged, unread = _sum(figures, "spm_app_marks_damaged"), _sum(figures, "spm_standing_failures")
    gone, running = _sum(figures, "spm_app_sources", state="gone"), _sum(figures, "spm_runs_running")
    balances, mails = "admin:ingest_appbalance_changelist", "admin:alerts_notification_changelist"
    tiles = [
        _count("Samples not yet stored", unsettled, balances, "accepted, and still in the queue", is_alarming=False),
        Tile("Oldest of them", _age(lag_s), lag_s > _LAG_S_MAX, balances, f"a bound of {_LAG_S_MAX} s"),
        _count("Dead letters", dead, "admin:ingest_appdeadletters_changelist", "wait for somebody to decide"),
        _count("Messages to send", unsent, mails, "notifications and account mails", is_alarming=False),
        _count("Messages given up", unsendable, mails, "no receiver got them"),
        _count("Rules that fail", failing, "admin:alerts_instance_changelist", "their last evaluation had an error"),
        _count("Sources that are down", gone, "admin:accounts_source_changelist", "of all apps", is_alarming=False),
        _count("Balances with damage", damaged, balances, "counts that cannot be read: run fsck"),
        _count("Apps that cannot be read", unread, "admin:accounts_app_changelist", "their figures are missing here"),
        _count("Runs now", running, "admin:rollups_run_changelist", "compactions and roll-ups", is_alarming=False),
        *_ages(figures, now_ms),
    ]
    return sorted(tiles, key=lambda tile: not tile.is_alarming)


def _ages(figures: Sequence[MetricValue], now_ms: int) -> list[Tile]:
    """Make a tile of the last success of each kind of run, and of the newest backup."""
    runs = [each for each in figures if each.name == "spm_run_last_success_timestamp_seconds"]
    tiles = []
    for each in runs:
        age_s = now_ms / 1000 - each.value
        is_old = age_s > _RUN_AGE_S_MAX
        title = f"Last {each.labels['kind']} run"
        tiles.append(Tile(title, f"{_age(age_s)} ago", is_old, "admin:rollups_run_changelist", "that succeeded"))
    for value in _values(figures, "spm_backup_last_timestamp_seconds"):
        age_s = now_ms / 1000 - value
        text = f"{_age(age_s)} ago" if value else "never"
        tiles.append(Tile("Newest backup", text, age_s > _BACKUP_AGE_S_MAX, "", "what it has can be restored"))
    return tiles


def _values(figures: Sequence[MetricValue], name: str, **labels: str) -> list[float]:
    return [each.value for each in figures if each.name == name and labels.items() <= dict(each.labels).items()]


def _sum(figures: Sequence[MetricValue], name: str, **labels: str) -> int:
    return round(sum(_values(figures, name, **labels)))


def _count(title: str, count: int, page: str, meaning: str, *, is_alarming: bool = True) -> Tile:
    return Tile(title, f"{count:,}", is_alarming and count > 0, page, meaning)


def _age(seconds: float) -> str:
    """Write a duration: ``12 s``, ``7 min``, ``3.1 h``, ``4.0 d``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7_200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} d"
