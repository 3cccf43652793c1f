"""Processes that write, relay and consume events of one database, and end by kill -9 at random places in their work.

``python -m tests.spm.events.kill_world ROLE SEED FOLDER`` forks a child that works until it is killed, and then the
next one, until its standard input closes. What a child has done it appends to a file of the folder, line by line.
"""

import json
import os
import random
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import django

django.setup()

from django.db import transaction  # noqa: E402

from spm.accounts.models import App, Organisation  # noqa: E402
from spm.clock import SystemClock  # noqa: E402
from spm.errors import Refused  # noqa: E402
from spm.events import groups, log, outbox, relay  # noqa: E402
from spm.events.models import ConsumerGroup, Event  # noqa: E402
from spm.events.outbox import Draft, Place  # noqa: E402

KEYS, LEASE_S = 7, 1
Die = Callable[[str], None]


def write(place: Place, die: Die, seed: int, folder: Path) -> None:
    """Write events whose transactions stay open for a random time. One whose commit is unknown is written again."""
    done = folder / f"written-{seed}"
    number = len(done.read_text().splitlines()) if done.exists() else 0
    while True:
        with transaction.atomic():
            draft = Draft(
                kind="note", text=str(number), at_ms=1, key=f"{seed}-{number % KEYS}", event_id=f"{seed}-{number}"
            )
            outbox.emit(place, [draft], now_ms=1)
            time.sleep(random.choice([0, 0, 0.003, 0.02]))
            die("before the commit")
        die("after the commit")
        append(done, str(number))
        number += 1
        time.sleep(0.004)  # a database with one writer has room for others


def give_positions(place: Place, die: Die, seed: int, folder: Path) -> None:
    """Relay."""
    while True:
        relay.advance(place.organisation, crash_point=die)
        time.sleep(0.01)


def read(place: Place, die: Die, seed: int, folder: Path) -> None:
    """Read the stream from the last position that was noted."""
    done = folder / f"read-{seed}"
    lines = done.read_text().splitlines() if done.exists() else []
    position = json.loads(lines[-1])[0] if lines else 0
    while True:
        page = log.read(place.organisation, place.app, position)
        die("after a read")
        for event in page.events:
            append(done, json.dumps([event.position, event.event_id]))
        position = page.through
        time.sleep(0.01)


def consume(place: Place, die: Die, seed: int, folder: Path) -> None:
    """Consume as a member of the group that all consumers share."""
    group, clock = ConsumerGroup.objects.get(app=place.app), SystemClock()
    name = groups.join(group, lease_s=LEASE_S, now_ms=clock.now_ms()).name
    while True:
        try:
            fetched = groups.fetch(group, place, name, count=5, now_ms=clock.now_ms())
            die("after a fetch")
            for event in fetched.events:
                append(folder / "consumed", json.dumps([fetched.fence, event.key, int(event.text)]))
            die("before a commit")
            if fetched.events:
                groups.commit(group, name, fetched.through, now_ms=clock.now_ms())
            die("after a commit")
        except Refused:  # its lease ran out
            name = groups.join(group, lease_s=LEASE_S, now_ms=clock.now_ms()).name
        time.sleep(0.01)


ROLES = {"write": write, "relay": give_positions, "read": read, "consume": consume}


def append(path: Path, line: str) -> None:
    """Append a line at once, so that no part of it is there without the rest."""
    with path.open("ab", buffering=0) as file:
        file.write(f"{line}\n".encode())


def work(role: str, seed: int, folder: Path) -> int:
    """Fork workers, one after the other, until the standard input closes; return how many were killed."""
    place = place_of_all()
    killed = 0
    while True:
        child = os.fork()
        if child == 0:
            random.seed(seed * 1000 + killed)

            def die(point: str) -> None:
                if random.random() < 0.03:
                    os.kill(os.getpid(), signal.SIGKILL)

            ROLES[role](place, die, seed, folder)
        while os.waitpid(child, os.WNOHANG)[0] == 0:
            if select.select([sys.stdin], [], [], 0.01)[0]:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return killed
        killed += 1
        append(folder / "kills", role)


def place_of_all() -> Place:
    """The one app; no connection stays open, since children must not share it."""
    app = App.objects.get()
    django.db.connections.close_all()
    return Place(app.organisation_id, app.pk)


def main() -> None:
    """Do what the command line says."""
    role, seed, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    if role == "found":
        organisation = Organisation.objects.create(name="o")
        app = App.objects.create(organisation=organisation, name="a")
        groups.register(Place(organisation.pk, app.pk), groups.GroupDraft(name="g", position=0), now_ms=1)
    elif role == "rows":
        place = place_of_all()
        relay.advance_all()
        rows = Event.objects.order_by("position").values_list("position", "event_id")
        print(json.dumps([[*rows], log.head_of(place.organisation).position]))
    else:
        print(work(role, seed, folder))


if __name__ == "__main__":
    main()
