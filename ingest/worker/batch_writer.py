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

    def write(self, envelopes: Envelopes, handles: Collection[AckHandle], end_ms: int) -> frozenset[int]:
        """Make the envelopes durable, or dead letters; return the apps whose messages cannot be written for now.

        Those of all other apps are. Raises another ``…Unavailable`` when neither is certain.
        """
        try:
            self._commit(envelopes, handles, end_ms)
        except AppUnavailable as error:
            apps = sorted(set(envelopes.app.tolist()))
            if len(apps) == 1:
                log.warning("%d messages of app %d have to wait: %s", len(envelopes), apps[0], error)
                return frozenset(apps)
            parts = (envelopes.select_messages(envelopes.app == app) for app in apps)
            return frozenset().union(*[self.write(part, handles, end_ms) for part in parts])
        except (StoreUnavailable, QueueUnavailable):
            raise
        except Exception as error:
            log.exception("a batch of %d messages cannot be written", len(envelopes))
            if len(envelopes) == 1:
                self._dead_letters.publish_envelope(envelopes[0], f"cannot be written: {error!r}")
                return frozenset()
            return frozenset().union(*[self.write(half, handles, end_ms) for half in envelopes.halves()])
        return frozenset()

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
