"""Names the points at which crash tests kill a run, to prove the storage protocol.

A run calls ``at(point)`` between any two steps that others can see. Normally that does nothing; a test passes a hook
that raises, and ``SPM_CRASH_AT=point`` (or ``point:3`` for the third time) kills the process there with SIGKILL.
``POINTS`` lists every name, so that a test can prove that it has reached all of them.
"""

import os
import signal
from collections.abc import Callable, Mapping

Hook = Callable[[str], None]

POINTS = (
    "planned",  # pending and manifests read, nothing written
    "blocks read",  # in a task: the inputs of an hour shard are in memory
    "pages written",  # in a task: chunks and timelines are durable, their inputs row is not
    "inputs written",  # in a task: the generation is complete, no manifest names it
    "hours written",  # in a task: a day's pack of hours is complete, no manifest names it
    "compacted",  # all tasks are done, nothing is published
    "publish sent",  # a check-and-put was sent: its answer is not known yet
    "published",  # one (app, day) points to the new generations, its pending records still exist
    "ledger written",  # the ledger rows are durable, the pending records still exist
    "unpended",  # one (app, day) is done
    "days written",  # a month's pack of days is complete, no manifest names it
    "month published",  # the days of a month are in force
    "agenda marked",  # a day that a full run has passed already is noted as due, its pending records still exist
    "agenda written",  # a full run has noted that it is done
    "late counted",  # samples too late for a sealed hour are in the ledger, their pending records are removed
    "roll back noted",  # days of a roll back are noted as due, nothing is rolled back
    "rolled back",  # one (app, day) of a roll back is done
    "moved",  # the data of some hours of one (app, day) lies in other shards now
    "epoch closing",  # writers that still use an epoch will write again under the newest
    "epoch ending",  # rows written under it from now on do not count as stored; readers may still find them
    "histories cut",  # nothing can be rolled back into an epoch's shards on one (app, day)
    "epoch closed",  # nobody reads an epoch's shards any more
    "purge listed",  # the rows to delete are known, the fence is not set
    "purge fenced",  # history is cut, nothing is deleted
    "purge deleting",  # some superseded rows are deleted, others are not
    "sealing",  # hours of a day are marked: nobody else publishes them
    "sealed",  # their aggregates are final and in force, their raw samples still exist
    "raw deleting",  # some rows of sealed hours are deleted, others are not
    "expired",  # daily rows answer for the hours, whose rows still exist
    "hours deleting",  # some rows of expired hours or days are deleted, others are not
    "days dropped",  # a month does not name its oldest days any more, their rows still exist
    "erasure marked",  # a retraction cannot be undone any more, all its samples still exist
    "erasure published",  # a day is in force without them, the former rows still exist
    "deleting app",  # some rows of a deleted app are deleted, others are not
)


def ignore_point(point: str) -> None:
    """Does nothing: the hook of normal operation."""
    assert point in POINTS, f"BUG: {point!r} is not listed"


def from_environment(environ: Mapping[str, str]) -> Hook:
    """The hook that ``SPM_CRASH_AT`` configures."""
    crash_point, _, times = environ.get("SPM_CRASH_AT", "").partition(":")
    if not crash_point:
        return ignore_point
    remaining = int(times or 1)

    def kill(point: str) -> None:
        nonlocal remaining
        ignore_point(point)
        if point == crash_point:
            remaining -= 1
            if remaining == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return kill
