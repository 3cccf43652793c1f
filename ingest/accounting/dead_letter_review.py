"""Dead letters for people: what is in them, and how to replay or dismiss them.

Enter by ``list_dead_letters`` and ``settle``. A replay is a new acceptance: the message gets a new stamp under its old
id and is accepted like any other. A replay that is repeated, also after a crash half-way, makes equal values with two
stamps, which readers count once. No dead letter is ever deleted here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from typing import Any

from ingest.accept.identity import message_id_of
from ingest.http.body import read_body
from ingest.protocols import by_content
from ingest.writer import dead_letter_steps
from spm.clock import moment
from spm.errors import CorruptBlock, Refused, SpmError
from spm.limits import DEAD_LETTER_CHARS_SHOWN, DEAD_LETTER_SAMPLES_SHOWN
from spm.store.backends.base import Backend, Reader
from spm.store.ledger import dead_letters
from spm.store.ledger.dead_letters import (
    BODY,
    DISMISSED,
    MESSAGE,
    REPLAYED,
    ROW,
    TORN,
    UNKNOWN_APP,
    WAITING,
    DeadLetter,
    StoredDeadLetter,
)
from spm.wire import Envelope, Stamp, parse_canonical

STATES = ("waiting", "replayed", "dismissed")
Accept = Callable[[Envelope], None]  # accepts a message again and returns when it is durable


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample as people write it."""

    series: str
    ts_ms: int
    value: float


@dataclass(frozen=True, slots=True)
class DeadLetterSummary:
    """A dead letter for people; ``samples`` are the first of ``count``.

    A damaged row has a ``place`` instead, and a body that is no envelope its first characters, ``excerpt``.
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
        """The time of its acceptance."""
        return moment(self.ingest_ms)


@dataclass(frozen=True, slots=True)
class ReviewResult:
    """How many dead letters were settled, and why the others were not."""

    done: int
    refused: tuple[str, ...]


def list_dead_letters(reader: Reader, app: int, *, count: int, before: str = "") -> list[DeadLetterSummary]:
    """Return the newest dead letters of an app; ``before``: the key after which older ones follow."""
    after = _key(app, before) if before else None
    return [_summary(stored) for stored in dead_letters.newest(reader, app, count=count, before=after)]


def settle(store: Backend, app: int, keys: Sequence[str], act: str, accept: Accept) -> ReviewResult:
    """``replay`` or ``dismiss`` these dead letters."""
    return replay(store, app, keys, accept) if act == "replay" else dismiss(store, app, keys)


def replay(store: Backend, app: int, keys: Sequence[str], accept: Accept) -> ReviewResult:
    """Accept the messages of these dead letters again. One that fails again becomes a new dead letter."""

    def replay_one(stored: StoredDeadLetter) -> None:
        dead_letter = dead_letters.decode(stored.raw)
        envelope = _envelope(stored, dead_letter)
        if dead_letter.kind == TORN:  # now that it can be read, its first stamp gets its ledger row, too
            store.put(dead_letter_steps(envelope, dead_letter.cause)[1:])
        accept(envelope)

    return _settle_each(store, app, keys, REPLAYED, replay_one)


def dismiss(store: Backend, app: int, keys: Sequence[str]) -> ReviewResult:
    """Mark these dead letters as done without a replay. They stay stored, for the balance."""
    return _settle_each(store, app, keys, DISMISSED, lambda stored: None)


def count_waiting(reader: Reader, app: int, *, at_most: int) -> int:
    """Return how many dead letters are not settled, counted up to a bound."""
    return sum(stored.state == WAITING for stored in dead_letters.newest(reader, app, count=at_most))


def waiting_text(reader: Reader, app: int, *, at_most: int) -> str:
    """Return that count as text, for a list of apps; "?" while the store does not answer."""
    try:
        count = count_waiting(reader, app, at_most=at_most)
    except SpmError:
        return "?"
    return f"{count} or more" if count == at_most else str(count)


def _settle_each(
    store: Backend, app: int, keys: Sequence[str], state: int, act: Callable[[StoredDeadLetter], Any]
) -> ReviewResult:
    done, refused = 0, []
    names = [_key(app, key) for key in keys]
    for key, stored in zip(keys, dead_letters.find(store, names), strict=True):
        try:
            if stored is None:
                raise Refused("no such dead letter")
            if stored.state != WAITING:
                raise Refused(f"was {STATES[stored.state]} already")
            act(stored)
            dead_letters.settle(store, stored.key, state)
            done += 1
        except SpmError as error:
            refused.append(f"{key[:24]}…: {error}")
    return ReviewResult(done, tuple(refused))


def _key(app: int, text: str) -> bytes:
    """Return the row's key; a text that is no key of this app becomes a key that does not exist."""
    head = app.to_bytes(4, "big")
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        return head + bytes(24)
    return raw if len(raw) == 28 and raw.startswith(head) else head + bytes(24)


def _envelope(stored: StoredDeadLetter, dead_letter: DeadLetter) -> Envelope:
    """Return the message in a dead letter; its app must be the dead letter's, if that is known."""
    if dead_letter.kind == ROW:
        raise Refused(
            f"is a damaged row of {dead_letter.table}, no message", remedy="Repair it with fsck or from a backup."
        )
    if dead_letter.kind == BODY:
        return _parsed_body(stored, dead_letter)
    envelope = Envelope.from_bytes(dead_letter.body)
    if envelope.app != stored.app and (dead_letter.kind, stored.app) != (TORN, UNKNOWN_APP):
        raise CorruptBlock("holds a message of another app", got=envelope.app, wanted=stored.app)
    return envelope


def _parsed_body(stored: StoredDeadLetter, dead_letter: DeadLetter) -> Envelope:
    """Parse an agent's body as of the time when it came."""
    if stored.app == UNKNOWN_APP:
        raise Refused("its sender is not proven")
    about = dead_letter.description()
    if about.size > len(dead_letter.body):
        raise Refused(f"only {len(dead_letter.body):,} of its {about.size:,} bytes are kept")
    body = read_body(BytesIO(dead_letter.body), encoding=about.encoding, length=len(dead_letter.body))
    parsed = by_content.parse(body, about.media, stored.ingest_ms)
    message_id = message_id_of(parsed, given=about.message_id, token_id=0, path=about.source, body=body)
    columns = (parsed.series, parsed.series_index, parsed.ts, parsed.values)
    return Envelope(stored.app, about.source, Stamp(stored.ingest_ms, 0, 0), message_id, *columns)


def _summary(stored: StoredDeadLetter) -> DeadLetterSummary:
    key, at_ms = stored.key.hex(), stored.ingest_ms
    state = STATES[stored.state] if stored.state < len(STATES) else f"state {stored.state}"
    try:
        dead_letter = dead_letters.decode(stored.raw)
        cause = dead_letter.cause
        if dead_letter.kind == ROW:
            return DeadLetterSummary(key, at_ms, state, cause, place=f"{dead_letter.table} {dead_letter.key.hex()}")
        if dead_letter.kind != MESSAGE:
            source, excerpt = dead_letter.description().source, _excerpt(dead_letter)
            return DeadLetterSummary(key, at_ms, state, cause, source=source, excerpt=excerpt)
        envelope = _envelope(stored, dead_letter)
    except SpmError as error:
        return DeadLetterSummary(key, at_ms, state, f"the dead letter itself cannot be read: {error}")
    samples = tuple(_sample(envelope, i) for i in range(min(len(envelope), DEAD_LETTER_SAMPLES_SHOWN)))
    return DeadLetterSummary(
        key,
        at_ms,
        state,
        cause,
        source=envelope.source,
        count=len(envelope),
        series=len(envelope.series.ids),
        samples=samples,
    )


def _excerpt(dead_letter: DeadLetter) -> str:
    """Return the size of a body and its first characters; unprintable ones become dots."""
    text = dead_letter.body[:DEAD_LETTER_CHARS_SHOWN].decode("utf-8", "replace")
    printable = "".join(char if char.isprintable() and char != "\ufffd" else "." for char in text)
    return f"{dead_letter.description().size:,} bytes: {printable}"


def _sample(envelope: Envelope, row: int) -> Sample:
    metric, labels = parse_canonical(envelope.series.canonical(int(envelope.series_index[row])))
    inside = ",".join(f'{name}="{value}"' for name, value in labels.items())
    text = f"{metric}{{{inside}}}" if inside else metric
    return Sample(text, int(envelope.ts[row]), float(envelope.values[row]))
