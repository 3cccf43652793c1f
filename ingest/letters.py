"""Dead letters for people: what is in them, and how they come back after the cause was mended.

Enter by ``listed`` and ``settle``. A replay is a new acceptance: the message gets a new stamp under its
old id and goes through the front door like any other. One that is repeated, also after a crash half-way, makes equal
values with two stamps, which readers count once. No letter is ever deleted here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from spm.errors import CorruptBlock, Refused, SpmError
from spm.limits import LETTER_SAMPLES_SHOWN
from spm.store import dead
from spm.store.backends.base import Backend, Reader
from spm.store.dead import DISMISSED, MESSAGE, REPLAYED, WAITING, Found
from spm.wire import Envelope, parse_canonical

STATES = ("waiting", "replayed", "dismissed")
Push = Callable[[Envelope], None]  # accepts a message anew and returns when it is durable


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample as people write it."""

    series: str
    ts_ms: int
    value: float


@dataclass(frozen=True, slots=True)
class Shown:
    """A dead letter to be looked at; ``samples`` are the first of ``count``. A damaged row has a ``place`` instead."""

    key: str
    ingest_ms: int
    state: str
    cause: str
    source: str = ""
    count: int = 0
    series: int = 0
    samples: tuple[Sample, ...] = ()
    place: str = ""

    @property
    def accepted(self) -> datetime:
        """The same as a time for people."""
        return datetime.fromtimestamp(self.ingest_ms / 1000, UTC)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a request: how many letters, and why the others did not."""

    done: int
    refused: tuple[str, ...]


def listed(reader: Reader, app: int, *, count: int, before: str = "") -> list[Shown]:
    """The newest letters of an app; ``before``: the key from which to go on to older ones."""
    after = _key(app, before) if before else None
    return [_shown(found) for found in dead.newest(reader, app, count=count, before=after)]


def settle(store: Backend, app: int, keys: Sequence[str], act: str, push: Push) -> Outcome:
    """``replay`` or ``dismiss`` these letters."""
    return replay(store, app, keys, push) if act == "replay" else dismiss(store, app, keys)


def replay(store: Backend, app: int, keys: Sequence[str], push: Push) -> Outcome:
    """Accept these letters' messages anew. What fails again becomes a new letter, with its new cause."""
    return _each(store, app, keys, REPLAYED, lambda found: push(_envelope(found)))


def dismiss(store: Backend, app: int, keys: Sequence[str]) -> Outcome:
    """Say of these letters that nothing is to be done. They stay, for the account."""
    return _each(store, app, keys, DISMISSED, lambda found: None)


def waiting(reader: Reader, app: int, *, at_most: int) -> int:
    """How many letters nobody has settled, counted up to a bound."""
    return sum(found.state == WAITING for found in dead.newest(reader, app, count=at_most))


def _each(store: Backend, app: int, keys: Sequence[str], state: int, act: Callable[[Found], Any]) -> Outcome:
    done, refused = 0, []
    names = [_key(app, key) for key in keys]
    for key, found in zip(keys, dead.find(store, names), strict=True):
        try:
            if found is None:
                raise Refused("no such letter")
            if found.state != WAITING:
                raise Refused(f"was {STATES[found.state]} already")
            act(found)
            dead.settle(store, found.key, state)
            done += 1
        except SpmError as error:
            refused.append(f"{key[:24]}…: {error}")
    return Outcome(done, tuple(refused))


def _key(app: int, text: str) -> bytes:
    """The row's key; whatever is none of this app's own comes out as one that does not exist."""
    head = app.to_bytes(4, "big")
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        return head + bytes(24)
    return raw if len(raw) == 28 and raw.startswith(head) else head + bytes(24)


def _envelope(found: Found) -> Envelope:
    letter = dead.decode(found.raw)
    if letter.kind != MESSAGE:
        raise Refused(f"is a damaged row of {letter.table}, no message", remedy="Repair it with fsck or from a backup.")
    envelope = Envelope.from_bytes(letter.body)
    if envelope.app != found.app:
        raise CorruptBlock("holds a message of another app", got=envelope.app, wanted=found.app)
    return envelope


def _shown(found: Found) -> Shown:
    key, state = found.key.hex(), STATES[found.state] if found.state < len(STATES) else f"state {found.state}"
    try:
        letter = dead.decode(found.raw)
        if letter.kind != MESSAGE:
            return Shown(key, found.ingest_ms, state, letter.cause, place=f"{letter.table} {letter.key.hex()}")
        envelope = _envelope(found)
    except SpmError as error:
        return Shown(key, found.ingest_ms, state, f"the letter itself cannot be read: {error}")
    first = tuple(_sample(envelope, i) for i in range(min(len(envelope), LETTER_SAMPLES_SHOWN)))
    return Shown(
        key, found.ingest_ms, state, letter.cause,
        source=envelope.source, count=len(envelope), series=len(envelope.series.ids), samples=first,
    )  # fmt: skip


def _sample(envelope: Envelope, row: int) -> Sample:
    metric, labels = parse_canonical(envelope.series.canonical(int(envelope.series_index[row])))
    inside = ",".join(f'{name}="{value}"' for name, value in labels.items())
    text = f"{metric}{{{inside}}}" if inside else metric
    return Sample(text, int(envelope.ts[row]), float(envelope.values[row]))
