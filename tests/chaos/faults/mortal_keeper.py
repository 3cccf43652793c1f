"""A beat that moves watermarks every second and does nothing else, and workers whose keeper dies where a test says.

``celery -A tests.chaos.faults.mortal_keeper beat`` is the first; the second is chosen by ``SPM_CONSUMER_STEP``. A file
of the name ``die-before-mark`` or ``die-after-mark`` in the data folder kills the first worker that is about to move a
mark, or has just done so and told nobody.
"""

import os
import signal
from importlib import import_module
from pathlib import Path

from ingest.worker.connections import ConsumerStep
from spm.store.backends.base import Backend
from spm.store.ledger import watermarks
from spm.store.ledger.watermarks import ProcessWatermarks, Watermark

POINTS = ("before", "after")


class MortalKeeper(ConsumerStep):
    """Consumes as the real one does."""


def stop_file(folder: Path, point: str) -> Path:
    """The file that asks for a death."""
    return folder / f"die-{point}-mark"


_put = watermarks._put_watermark


def _deadly(store: Backend, app: int, process: ProcessWatermarks, watermark: Watermark) -> bool:
    _die("before")
    landed = _put(store, app, process, watermark)
    _die("after")
    return landed


def _die(point: str) -> None:
    wish = stop_file(Path(os.environ["SPM_DATA"]), point)
    try:
        wish.rename(wish.with_suffix(".done"))
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


watermarks._put_watermark = _deadly
app = import_module("spm.celery").app  # last: a worker's loads this module in its turn, for the class above
app.conf.beat_schedule = {
    "keep marks": {"task": "ingest.tasks.keep_marks", "schedule": 1, "options": {"expires": 10}},
}
