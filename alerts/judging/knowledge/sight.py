"""What a judge sees of an app before it judges: what is known, how far that reaches, and what is new. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from alerts.judging.answers import Read
from alerts.judging.knowledge.patience import SourceTimes
from alerts.judging.lane_plan import News


@dataclass(frozen=True, slots=True)
class KeptKnowledge:
    """K as an operation keeps it: a watermark vector's bytes, and the numbers of the retractions in force."""

    vector: bytes
    retractions: tuple[int, ...] = ()


def _no_news() -> News | None:
    return None


@dataclass(frozen=True, slots=True)
class Sight:
    """One look at an app: ``read`` evaluates at ``knowledge`` (None: at the present, which nothing can replay).

    ``ready_ms``: up to there everything is known and no source is waited for; ``frontier_ms``: everything is known.
    ``news`` tells what became known since the lane's last operation and lies behind its position.
    """

    read: Read
    now_ms: int
    ready_ms: int
    frontier_ms: int
    sources: Mapping[str, SourceTimes] = field(default_factory=dict)
    knowledge: KeptKnowledge | None = None
    news: Callable[[], News | None] = _no_news
