"""Named places in a run where it may be killed: the crash tests of the storage protocol.

A run calls ``at(point)`` between any two acts that others can see. Normally that does nothing; a test passes a hook
that raises, and ``SPM_CRASH_AT=point`` (or ``point:3`` for the third time) kills the process there with SIGKILL, as a
machine would. ``POINTS`` lists every name, so that a test can prove it has been to all of them.
"""

import os
import signal
from collections.abc import Callable, Mapping

Hook = Callable[[str], None]

POINTS = (
    "planned",  # pending and manifests read, nothing written
    "blocks read",  # in a task: inputs of a unit are in memory
    "pages written",  # in a task: chunks and timelines are durable, their inputs row is not
    "inputs written",  # in a task: the generation is complete, nobody knows of it
    "hours written",  # in a task: a day's pack of hours is complete, nobody knows of it
    "compacted",  # all tasks are done, nothing flipped
    "flip sent",  # a check-and-put has been sent: its answer is not known yet
    "flipped",  # one (app, day) points to the new generations, its pending cells are still there
    "ledger written",  # the account is durable, the pending cells are still there
    "unpended",  # one (app, day) is done
    "days written",  # a month's pack of days is complete, nobody knows of it
    "month flipped",  # the days of a month are in force
    "agenda marked",  # a day that a full run has passed already is noted as due, its pending cells are still there
    "agenda written",  # a full run has noted that it is done
    "late counted",  # what came too late for a sealed hour is accounted for and gone
    "roll back noted",  # days of a roll back are noted as due, nothing is rolled back
    "rolled back",  # one (app, day) of a roll back is done
    "moved",  # the data of some hours of one (app, day) lies in other shards now
    "epoch closing",  # writers that still use an epoch will write again under the newest
    "epoch ending",  # nobody counts on what is put by it from now on; what is there may still be found
    "histories cut",  # nothing can be rolled back into an epoch's shards on one (app, day)
    "epoch closed",  # nobody looks in an epoch's shards any more
    "purge listed",  # what may be deleted is known, the fence is not up
    "purge fenced",  # history is cut, nothing is deleted
    "purge deleting",  # some superseded rows are gone, others are not
    "sealing",  # hours of a day are marked: nobody else flips them
    "sealed",  # their hours are final and in force, their raw is still there
    "raw deleting",  # some rows of sealed hours are gone, others are not
    "expired",  # a day answers for its hours, whose rows are still there
    "hours deleting",  # some rows of expired hours or days are gone, others are not
    "days dropped",  # a month names its oldest days no more, their rows are still there
    "purge marked",  # a retraction cannot be undone any more, its samples are all there
    "purge rewritten",  # a day is in force without them, the former rows are still there
    "erasing",  # some rows of a deleted app are gone, others are not
)


def nowhere(point: str) -> None:
    """The hook of normal life."""
    assert point in POINTS, f"BUG: {point!r} is not listed"


def from_environment(environ: Mapping[str, str]) -> Hook:
    """The hook that ``SPM_CRASH_AT`` asks for."""
    wanted, _, times = environ.get("SPM_CRASH_AT", "").partition(":")
    if not wanted:
        return nowhere
    left = int(times or 1)

    def kill(point: str) -> None:
        nonlocal left
        nowhere(point)
        if point == wanted:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return kill
