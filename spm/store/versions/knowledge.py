"""What was known of an app at one moment: K, a watermark vector and the retractions then in force (PROTOCOL 26).

A verdict keeps its K, and whatever is read at a K gives the same answer for ever: a vector never changes what it says
of a stamp, and the row of a retraction stays when it is undone. The retractions are a set and not the number of the
last one, since two that are made at once may be put in the other order than their numbers. Enter by ``Knowledge``.
"""

from collections.abc import Iterable, Mapping

from spm import limits
from spm.errors import Refused
from spm.fast_dataclass import dataclass
from spm.store.ledger.watermarks import ProcessWatermarks, WatermarkVector
from spm.store.versions.retractions import Retraction


class KnowledgeExpired(Refused):
    """What was known at that moment has been deleted since, so the answer of then cannot be given again."""


@dataclass(frozen=True, slots=True)
class Knowledge:
    """K: the stamps that are known, and the numbers of the retractions in force."""

    vector: WatermarkVector
    retractions: frozenset[int]

    @classmethod
    def of(cls, watermarks: Mapping[int, ProcessWatermarks], retractions: Iterable[Retraction]) -> "Knowledge":
        """Return what is known now; the watermarks must have been read first."""
        return cls(WatermarkVector.of(watermarks), frozenset(each.number for each in retractions if each.active()))

    def in_force(self, retraction: Retraction) -> bool:
        """Whether a retraction hides anything at this K; an erased one does for ever."""
        if retraction.erased_ms and retraction.number not in self.retractions:
            raise KnowledgeExpired(
                f"the samples of retraction {retraction.number} are erased, and were not retracted yet at that moment",
                remedy="Ask for what is known now.",
            )
        return retraction.number in self.retractions

    def knows_all_to(self, stamp_ms: int) -> bool:
        """Whether rows with stamps up to this time can hold none that is unknown, as far as clocks may differ."""
        return stamp_ms + limits.KNOWN_MARGIN_MS <= self.vector.complete_to_ms
