"""Dead letters for people: what is in them, and how they come back after the cause was mended.

Enter by ``listed`` and ``settle``. A replay is a new acceptance: the message gets a new stamp under its
old id and goes through the front door like any other. One that is repeated, also after a crash half-way, makes equal
values with two stamps, which readers count once. No letter is ever deleted here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from typing import Any

from ingest.accept.acceptor import message_id_of
from ingest.http.body import read_body
from ingest.protocols import by_content
from ingest.writer import burial
from spm.clock import moment
from spm.errors import CorruptBlock, Refused, SpmError
from spm.limits import LETTER_CHARS_SHOWN, LETTER_SAMPLES_SHOWN
from spm.store.backends.base import Backend, Reader
from spm.store.ledger import dead_letters
from spm.store.ledger.dead_letters import (
    BODY,
    DISMISSED,
    MESSAGE,
    NOBODY,
    REPLAYED,
    ROW,
    TORN,
    WAITING,
    DeadLetter,
    StoredDeadLetter,
)
from spm.wire import Envelope, Stamp, parse_canonical

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
    """A dead letter to be looked at; ``samples`` are the first of ``count``.

    A damaged row has a ``place`` instead, and what is no envelope its beginning, ``excerpt``.
    """

    key: str
    ingest_ms: int
    state: str
    cause: str
    source: str = ""
    count: int = 0
    series: int = 0
    samples: tuple[Sample, ...] = ()
    place: str = ""
    excerpt: str = ""

    @property
    def accepted(self) -> datetime:
        """The same as a time for people."""
        return moment(self.ingest_ms)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a request: how many letters, and why the others did not."""

    done: int
    refused: tuple[str, ...]


def listed(reader: Reader, app: int, *, count: int, before: str = "") -> list[Shown]:
    """The newest letters of an app; ``before``: the key from which to go on to older ones."""
    after = _key(app, before) if before else None
    return [_shown(found) for found in dead_letters.newest(reader, app, count=count, before=after)]


def settle(store: Backend, app: int, keys: Sequence[str], act: str, push: Push) -> Outcome:
    """``replay`` or ``dismiss`` these letters."""
    return replay(store, app, keys, push) if act == "replay" else dismiss(store, app, keys)


def replay(store: Backend, app: int, keys: Sequence[str], push: Push) -> Outcome:
    """Accept these letters' messages anew. What fails again becomes a new letter, with its new cause."""

    def again(found: StoredDeadLetter) -> None:
        letter = dead_letters.decode(found.raw)
        envelope = _envelope(found, letter)
        if letter.kind == TORN:  # now that it can be read: its first stamp is accounted for, too
            store.put(burial(envelope, letter.cause)[1:])
        push(envelope)

    return _each(store, app, keys, REPLAYED, again)


def dismiss(store: Backend, app: int, keys: Sequence[str]) -> Outcome:
    """Say of these letters that nothing is to be done. They stay, for the account."""
    return _each(store, app, keys, DISMISSED, lambda found: None)


def waiting(reader: Reader, app: int, *, at_most: int) -> int:
    """How many letters nobody has settled, counted up to a bound."""
    return sum(found.state == WAITING for found in dead_letters.newest(reader, app, count=at_most))


def waiting_told(reader: Reader, app: int, *, at_most: int) -> str:
    """The same for a list of apps, which a store that is away must not take down."""
    try:
        count = waiting(reader, app, at_most=at_most)
    except SpmError:
        return "?"
    return f"{count} or more" if count == at_most else str(count)


def _each(store: Backend, app: int, keys: Sequence[str], state: int, act: Callable[[StoredDeadLetter], Any]) -> Outcome:
    done, refused = 0, []
    names = [_key(app, key) for key in keys]
    for key, found in zip(keys, dead_letters.find(store, names), strict=True):
        try:
            if found is None:
                raise Refused("no such letter")
            if found.state != WAITING:
                raise Refused(f"was {STATES[found.state]} already")
            act(found)
            dead_letters.settle(store, found.key, state)
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


def _envelope(found: StoredDeadLetter, letter: DeadLetter) -> Envelope:
    """The message in a letter, whose app is the letter's; that of nobody's letters of our own is in them."""
    if letter.kind == ROW:
        raise Refused(f"is a damaged row of {letter.table}, no message", remedy="Repair it with fsck or from a backup.")
    if letter.kind == BODY:
        return _accepted(found, letter)
    envelope = Envelope.from_bytes(letter.body)
    if envelope.app != found.app and (letter.kind, found.app) != (TORN, NOBODY):
        raise CorruptBlock("holds a message of another app", got=envelope.app, wanted=found.app)
    return envelope


def _accepted(found: StoredDeadLetter, letter: DeadLetter) -> Envelope:
    """What an agent's body holds, read as it was when it came."""
    if found.app == NOBODY:
        raise Refused("nobody vouches for its sender")
    about = letter.about()
    if about.size > len(letter.body):
        raise Refused(f"only {len(letter.body):,} of its {about.size:,} bytes are kept")
    body = read_body(BytesIO(letter.body), encoding=about.encoding, length=len(letter.body))
    parsed = by_content.parse(body, about.media, found.ingest_ms)
    message_id = message_id_of(parsed, given=about.message_id, token_id=0, path=about.source, body=body)
    columns = (parsed.series, parsed.series_index, parsed.ts, parsed.values)
    return Envelope(found.app, about.source, Stamp(found.ingest_ms, 0, 0), message_id, *columns)


def _shown(found: StoredDeadLetter) -> Shown:
    key, state = found.key.hex(), STATES[found.state] if found.state < len(STATES) else f"state {found.state}"
    try:
        letter = dead_letters.decode(found.raw)
        if letter.kind == ROW:
            return Shown(key, found.ingest_ms, state, letter.cause, place=f"{letter.table} {letter.key.hex()}")
        if letter.kind != MESSAGE:
            source = letter.about().source
            return Shown(key, found.ingest_ms, state, letter.cause, source=source, excerpt=_excerpt(letter))
        envelope = _envelope(found, letter)
    except SpmError as error:
        return Shown(key, found.ingest_ms, state, f"the letter itself cannot be read: {error}")
    first = tuple(_sample(envelope, i) for i in range(min(len(envelope), LETTER_SAMPLES_SHOWN)))
    return Shown(
        key,
        found.ingest_ms,
        state,
        letter.cause,
        source=envelope.source,
        count=len(envelope),
        series=len(envelope.series.ids),
        samples=first,
    )


def _excerpt(letter: DeadLetter) -> str:
    """The size of a body and how it begins; what is not printable is a dot."""
    text = letter.body[:LETTER_CHARS_SHOWN].decode("utf-8", "replace")
    shown = "".join(char if char.isprintable() and char != "\ufffd" else "." for char in text)
    return f"{letter.about().size:,} bytes: {shown}"


def _sample(envelope: Envelope, row: int) -> Sample:
    metric, labels = parse_canonical(envelope.series.canonical(int(envelope.series_index[row])))
    inside = ",".join(f'{name}="{value}"' for name, value in labels.items())
    text = f"{metric}{{{inside}}}" if inside else metric
    return Sample(text, int(envelope.ts[row]), float(envelope.values[row]))
