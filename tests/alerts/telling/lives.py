"""A program that lives through many short lives: each changes episodes, tells of them, and is killed at one place.

``python -m tests.alerts.telling.lives URL TURNS`` makes a database in ``SPM_DATA`` and forks one process for each place
and turn. A life is killed by SIGKILL before or after a step of commit, flush, claim, hand-over or outcome; then the
claims of the dead run out. The last lives are left alone. Two receivers hear of everything, a third by escalation of
what stays open for ``ESCALATION_MS``. It prints, as JSON, how many were killed and what is true of each episode.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import django

django.setup()

from django.contrib.auth.models import User  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import connections, transaction  # noqa: E402

from alerts import rulebook  # noqa: E402
from alerts.models import Episode, EpisodeStatus, Rule  # noqa: E402
from alerts.models.telling import EscalationStep, Notification  # noqa: E402
from alerts.notify.registry import NOTIFIERS  # noqa: E402
from alerts.notify.webhook import WebhookNotifier  # noqa: E402
from alerts.telling import actions, flush, hook, limits, sender  # noqa: E402
from spm.accounts.models import App, Organisation  # noqa: E402
from spm.clock import FakeClock  # noqa: E402
from tests.alerts.conftest import START_MS, draft  # noqa: E402
from tests.alerts.telling import configure  # noqa: E402

Place = tuple[Any, str, bool]  # where a name is looked up, the name, and whether to die after the call
PLACES: list[Place] = [
    (hook, "_write_words", False),
    (hook, "_write_words", True),
    (hook, "mark", True),
    (flush, "freeze", False),
    (flush, "freeze", True),
    (flush, "flush_receiver", True),
    (sender, "claim", False),
    (sender, "claim", True),
    (WebhookNotifier, "send", False),
    (WebhookNotifier, "send", True),
    (sender, "record", False),
    (sender, "_believe", False),
    (sender, "_believe", True),
    (sender, "record", True),
]
ESCALATION_MS = 400_000  # longer than a change, shorter than a life
CHANGE_MS, AFTER_DEATH_MS = 150_000, limits.CLAIM_MS + 1


def die_at(place: Place) -> None:
    """Have this process killed at the place, the first time that it comes there."""
    owner, name, is_after = place
    original = getattr(owner, name)

    def dies(*arguments: Any, **named: Any) -> Any:
        if is_after:
            original(*arguments, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, dies)


def change(rule: Rule, host: str, now_ms: int) -> None:
    """Begin an episode of the host, or end the one that is open, in one transaction with its mark."""
    with transaction.atomic():
        opened = Episode.objects.filter(rule=rule, fingerprint=host, status=EpisodeStatus.OPEN).first()
        if opened is None:
            times = {"start_ms": now_ms, "created_ms": now_ms, "changed_ms": now_ms}
            labels = {"host": host}
            opened = Episode.objects.create(rule=rule, fingerprint=host, labels=labels, severity="warning", **times)
        else:
            Episode.objects.filter(pk=opened.pk).update(status=EpisodeStatus.ENDED, end_ms=now_ms)
        hook.mark([opened.pk], now_ms=now_ms)


def live(rule: Rule, turn: int, clock: FakeClock, place: Place | None) -> None:
    """Change something, tell of it, change it again, tell of it."""
    if place is not None:
        die_at(place)
    for part in range(2):
        change(rule, "abc"[(turn + part) % 3], clock.now_ms())
        clock.advance(limits.GROUP_WAIT_MS)
        flush.flush_due(clock.now_ms())
        sender.deliver(notifiers=NOTIFIERS, clock=clock, threads=1)
        clock.advance(CHANGE_MS)


def settle(clock: FakeClock) -> None:
    """Let everything that is still to be told be told."""
    for _ in range(6):
        clock.advance(AFTER_DEATH_MS)
        flush.flush_due(clock.now_ms())
        sender.deliver(notifiers=NOTIFIERS, clock=clock, threads=1)


def in_a_process(act: Callable[[], None]) -> bool:
    """Do it in a process of its own; returns whether that was killed."""
    connections.close_all()
    pid = os.fork()
    if pid == 0:
        try:
            act()
        except BaseException as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            os._exit(1)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status) == signal.SIGKILL
    assert os.WEXITSTATUS(status) == 0, "BUG: a life failed"
    return False


def main(url: str, turns: int) -> None:
    """Live all lives."""
    call_command("migrate", verbosity=0)
    organisation = Organisation.objects.create(name="Acme")
    app = App.objects.create(organisation=organisation, name="Shop")
    author = User.objects.create_user("edda", password="x")
    rule = rulebook.write(app, draft(receivers=()), by=author, now_ms=START_MS)
    policy = configure.policy(app, 'severity="warning"', f"{url}/one", f"{url}/two", by=author)
    point = actions.add_contact_point(organisation, "later", (f"{url}/three",), by=author, now_ms=START_MS)
    EscalationStep.objects.create(policy=policy, after_ms=ESCALATION_MS, contact_point=point)
    clock, killed = FakeClock(START_MS), 0
    for turn, place in enumerate(place for place in PLACES for _ in range(turns)):
        killed += in_a_process(lambda turn=turn, place=place: live(rule, turn, clock, place))  # type: ignore[misc]
        clock.advance(2 * (limits.GROUP_WAIT_MS + CHANGE_MS) + AFTER_DEATH_MS)
        in_a_process(lambda turn=turn: live(rule, turn + 1, clock, None))  # type: ignore[misc]
        clock.advance(2 * (limits.GROUP_WAIT_MS + CHANGE_MS))
    in_a_process(lambda: settle(clock))
    states = {str(each.pk): each.status for each in Episode.objects.all()}
    waiting = Notification.objects.filter(state="waiting").count()
    sys.stdout.write(json.dumps({"killed": killed, "episodes": states, "waiting": waiting}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
