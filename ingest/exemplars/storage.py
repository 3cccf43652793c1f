"""Keeps exemplars in the database: the newest of each app.

``ExemplarWriter.write`` adds some, for the process's note writer, once a second; a process that is killed loses those
of about a second, and no sample. One that is sent again is the one that is there, under the newer stamp. ``prune``
deletes those that are older than the samples that their app keeps, and those that an erased retraction hides.
"""

import hashlib
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

import msgspec
from django.db.models import Exists, OuterRef

from ingest.exemplars import limits
from ingest.exemplars.rows import Rows, rows_of, stored_name
from ingest.models import StoredExemplar
from spm.accounts.bulk import execute_many
from spm.accounts.models import App
from spm.store.versions.retractions import Retraction
from spm.wire import Exemplar, metric_of

_WRITE = """
INSERT INTO ingest_storedexemplar (app_id, digest, metric, series, at_ms, bits, labels, source, stamp_ms)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (app_id, digest) DO UPDATE SET source = excluded.source, stamp_ms = excluded.stamp_ms
WHERE excluded.stamp_ms > ingest_storedexemplar.stamp_ms
"""
_DELETE_OVER = """
DELETE FROM ingest_storedexemplar WHERE id IN (
    SELECT id FROM ingest_storedexemplar WHERE app_id = %s ORDER BY at_ms DESC, id DESC LIMIT %s OFFSET %s
)
"""
_DAY_MS = 86_400_000
_ALL = 1 << 40  # rows: a LIMIT for a statement that needs one


@dataclass(frozen=True, slots=True)
class ExemplarNote:
    """An exemplar that waits for its write, with the stamp and the source of its message."""

    exemplar: Exemplar
    stamp_ms: int
    source: str


def newer_exemplar(before: ExemplarNote, later: ExemplarNote) -> ExemplarNote:
    """Return the later of two notes of one exemplar."""
    return later


class ExemplarWriter:
    """Writes exemplars, and keeps the number of each app's below its bound. One thread uses it at a time."""

    def __init__(self) -> None:
        self._added: dict[int, int] = {}  # by app, since this process last deleted what was over

    def write(self, notes: Mapping[int, Mapping[Exemplar, ExemplarNote]]) -> None:
        """Add exemplars, by app; within a transaction."""
        rows = [_row(app, note) for app, by_exemplar in notes.items() for note in by_exemplar.values()]
        execute_many(_WRITE, sorted(rows, key=itemgetter(0, 1)))  # two processes lock rows in one order
        if len(self._added) > limits.EXEMPLAR_APPS_COUNTED_MAX:
            self._added.clear()
        for app in sorted(notes):
            self._added[app] = self._added.get(app, limits.EXEMPLARS_SPARE) + len(notes[app])
            if self._added[app] > limits.EXEMPLARS_SPARE:
                delete_over(app)
                self._added[app] = 0


def delete_over(app_id: int) -> None:
    """Delete all exemplars of an app but the newest ones."""
    execute_many(_DELETE_OVER, [(app_id, _ALL, limits.EXEMPLARS_APP_MAX)])


def prune(now_ms: int, retractions_of: Callable[[int], Sequence[Retraction]]) -> int:
    """Delete what no query may show any more, of all apps; returns how many rows went."""
    deleted = 0
    with_some = App.objects.filter(Exists(StoredExemplar.objects.filter(app_id=OuterRef("pk"))))
    for app, raw_days in with_some.order_by("pk").values_list("pk", "raw_days"):
        rows = StoredExemplar.objects.filter(app_id=app)
        if raw_days is not None:
            deleted += rows.filter(at_ms__lt=now_ms - raw_days * _DAY_MS).delete()[0]
        if erased := [each for each in retractions_of(app) if each.erased_ms]:
            for some in _in_portions(app):
                deleted += rows.filter(pk__in=some.ids[some.hidden_by(erased)].tolist()).delete()[0]
    return deleted


def _in_portions(app_id: int) -> Iterator[Rows]:
    last = 0
    while True:
        after = StoredExemplar.objects.filter(app_id=app_id, pk__gt=last).order_by("pk")
        rows = rows_of(after[: limits.EXEMPLARS_READ_AT_ONCE])
        if not len(rows):
            return
        yield rows
        last = int(rows.ids[-1])


def _row(app: int, note: ExemplarNote) -> tuple[object, ...]:
    one = note.exemplar
    [bits] = struct.unpack("<q", struct.pack("<d", one.value))
    labels = msgspec.json.encode(one.labels).decode()
    size = len(one.series).to_bytes(4, "big")
    identity = b"".join([size, one.series, struct.pack("<qq", one.ts, bits), labels.encode()])
    [digest] = struct.unpack("<q", hashlib.blake2b(identity, digest_size=8).digest())
    metric = stored_name(metric_of(one.series).decode())
    return app, digest, metric, one.series, one.ts, bits, labels, note.source, note.stamp_ms
