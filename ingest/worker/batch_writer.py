"""Writes a batch of envelopes into the store, with retries; what can never be written becomes a dead letter.

Enter by ``BatchWriter.write``. A batch is prepared once and put; while the store does not answer, the same bytes are
put again without the steps that are confirmed already. A batch that cannot be written for another reason is written by
halves; a message that fails alone becomes a dead letter.
"""

import logging
from collections.abc import Collection
from dataclasses import replace

from ingest.transport.delivery import AckHandle
from ingest.worker.dead_letter_publisher import DeadLetterPublisher
from ingest.worker.retry import StoreRetry
from ingest.writer import Writer
from spm.envelope_batch import Envelopes
from spm.errors import AppUnavailable, QueueUnavailable, StoreUnavailable

log = logging.getLogger(__name__)


class BatchWriter:
    """Writes the batches of one consumer."""

    def __init__(self, writer: Writer, retry: StoreRetry, dead_letters: DeadLetterPublisher) -> None:
        self._writer, self._retry, self._dead_letters = writer, retry, dead_letters

    def write(self, envelopes: Envelopes, handles: Collection[AckHandle], end_ms: int) -> None:
        """Make the envelopes durable, or dead letters; raise an ``…Unavailable`` when neither is certain.

        If one app's cannot be written for now, those of all others are written before ``AppUnavailable`` is raised.
        """
        try:
            self._commit(envelopes, handles, end_ms)
        except AppUnavailable:
            apps = sorted(set(envelopes.app.tolist()))
            if len(apps) > 1:
                self._write_apart(envelopes, apps, handles, end_ms)
                return
            raise
        except (StoreUnavailable, QueueUnavailable):
            raise
        except Exception as error:
            log.exception("a batch of %d messages cannot be written", len(envelopes))
            if len(envelopes) == 1:
                self._dead_letters.publish_envelope(envelopes[0], f"cannot be written: {error!r}")
                return
            for half in envelopes.halves():
                self.write(half, handles, end_ms)

    def _write_apart(
        self, envelopes: Envelopes, apps: Collection[int], handles: Collection[AckHandle], end_ms: int
    ) -> None:
        """Write the messages of each app as a batch of its own; raise the last ``AppUnavailable`` at the end."""
        failure: AppUnavailable | None = None
        for app in apps:
            try:
                self.write(envelopes.select_messages(envelopes.app == app), handles, end_ms)
            except AppUnavailable as error:
                failure = error
        if failure is not None:
            raise failure

    def _commit(self, envelopes: Envelopes, handles: Collection[AckHandle], end_ms: int) -> None:
        batch = self._retry.call(lambda: self._writer.prepare(envelopes), handles, end_ms)

        def put() -> None:
            nonlocal batch
            try:
                self._writer.commit(batch)
            except StoreUnavailable as error:
                if error.rest is not None:
                    batch = replace(batch, steps=tuple(error.rest))
                raise

        self._retry.call(put, handles, end_ms)
