"""What an instance is called, and one change of its state. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from alerts.judging.automaton import InstanceState


class Aspect(StrEnum):
    """What an instance is about: the value of a series, its absence, or a rule that cannot be judged."""

    VALUE = "value"
    MISSING = "missing"
    ERROR = "error"


class EndReason(StrEnum):
    """Why an instance became ok."""

    RECOVERED = "recovered"
    NO_DATA = "no data"
    GONE = "gone"
    EDITED = "edited"
    SWITCHED_OFF = "switched off"
    DELETED = "deleted"
    PERSON = "person"


class InstanceKey(NamedTuple):
    """The name of an instance: its rule, its label set, its aspect."""

    rule: int
    fingerprint: str
    aspect: str


@dataclass(frozen=True, slots=True)
class Transition:
    """One change of an instance's state; ``reason`` says why it became ok, ``detail`` is the text of an error."""

    key: InstanceKey
    at_ms: int
    before: InstanceState
    after: InstanceState
    value: float | None
    reason: EndReason | None = None
    detail: str = ""


States = Mapping[InstanceKey, InstanceState]  # of instances that are not ok
