"""A small world for telling: episodes that people and data change, receivers that fail, and a checker of all they hear.

``World`` drives the real tables and the real code by a clock and a generator of its own; a history is one seed. The
checker raises ``Violation`` when a receiver hears something wrong, and ``check_end`` when it has not heard the truth.
"""

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast
from unittest.mock import patch

from django.db import transaction

from alerts.models import Episode, EpisodeStatus, Lane, Rule
from alerts.models.telling import LastWord, Silence
from alerts.notify.base import DeliveryFailed, Notifier
from alerts.telling import flush, hook, limits, sender
from spm.clock import FakeClock
from tests.alerts.conftest import START_MS

STEP_MS = 10_000
RECEIVERS = ("ada@example.org", "bob@example.org")


class Violation(BaseException):
    """A receiver heard something that it must not hear, or did not hear what it must."""


class Crash(BaseException):
    """Stands for kill -9."""


CRASH_POINTS: list[tuple[Any, str, bool]] = [
    (flush, "freeze", False),
    (flush, "freeze", True),
    (flush, "flush_receiver", True),
    (sender, "claim", True),
    (sender, "record", False),
    (sender, "_believe", False),
    (sender, "_believe", True),
    (sender, "record", True),
]


@contextlib.contextmanager
def dying(module: Any, name: str, is_after: bool) -> Iterator[None]:
    """Kill whatever calls the function, before the call or after it."""
    original = getattr(module, name)

    def dies(*arguments: Any, **named: Any) -> Any:
        if is_after:
            original(*arguments, **named)
        raise Crash

    with patch.object(module, name, dies):
        yield


class World:
    """One history of episodes of two rules on three hosts."""

    def __init__(self, rules: list[Rule], seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = FakeClock(START_MS)
        self.rules = rules
        self.quiet = False  # no faults any more
        self.bodies: dict[str, Mapping[str, Any]] = {}  # by receiver and key
        self.levels: dict[tuple[str, int], str] = {}  # what each receiver believes, by what it heard
        self.doubts: set[tuple[str, int]] = set()
        self.numbers: dict[tuple[str, str], int] = {}  # the last number of each receiver and group
        self.left_out: set[tuple[str, int]] = set()  # receivers and episodes of which their rule did not name them
        self.silences: list[tuple[str, int, int]] = []
        self.refuses = self.random.choice([None, *RECEIVERS])

    # --- what happens -------------------------------------------------------------------------------------------------

    def act(self) -> None:
        """Let a moment pass, and let one thing or another happen."""
        draw = self.random
        self.clock.advance(draw.choice([2_000, 5_000, 20_000, 60_000]))
        now_ms = self.clock.now_ms()
        Lane.objects.update(position_ms=now_ms // STEP_MS * STEP_MS)
        if not self.quiet:
            changes: list[Callable[[], None]] = [
                self.begin,
                self.end,
                self.void,
                self.reopen,
                self.silence,
                self.reroute,
                self.refuse,
            ]
            changes.append(lambda: None)
            draw.choice(changes)()
        self.guarded(lambda: flush.flush_due(self.clock.now_ms()))
        if draw.random() < 0.8 or self.quiet:
            self.guarded(lambda: sender.deliver(notifiers={"mail": cast(Notifier, self)}, clock=self.clock, threads=1))

    def guarded(self, action: Any) -> None:
        """Run an action that may be killed; the claims of the dead run out later."""
        module, name, is_after = self.random.choice(CRASH_POINTS)
        dies = contextlib.nullcontext() if self.quiet or self.random.random() < 0.8 else dying(module, name, is_after)
        try:
            with dies:
                action()
        except Crash:
            self.clock.advance(self.random.choice([1_000, limits.CLAIM_MS + 1]))

    def begin(self) -> None:
        rule, host = self.random.choice(self.rules), self.random.choice("abc")
        if Episode.objects.filter(rule=rule, fingerprint=host, status=EpisodeStatus.OPEN).exists():
            return
        now_ms = self.clock.now_ms()
        with transaction.atomic():
            episode = Episode.objects.create(
                rule=rule,
                fingerprint=host,
                labels={"host": host},
                severity=rule.severity,
                start_ms=now_ms // STEP_MS * STEP_MS,
                created_ms=now_ms,
                changed_ms=now_ms,
            )
            hook.mark([episode.pk], now_ms=now_ms)
        self.leave_out(rule, episode.pk)

    def leave_out(self, rule: Rule, *episodes: int) -> None:
        """Note which receivers the rule does not name now."""
        self.left_out |= {(each, episode) for each in RECEIVERS if each not in rule.receivers for episode in episodes}

    def end(self) -> None:
        self.change([EpisodeStatus.OPEN], EpisodeStatus.ENDED)

    def void(self) -> None:
        self.change([EpisodeStatus.OPEN, EpisodeStatus.ENDED], EpisodeStatus.VOID)

    def reopen(self) -> None:
        self.change([EpisodeStatus.ENDED, EpisodeStatus.VOID], EpisodeStatus.OPEN)

    def change(self, before: list[str], after: str) -> None:
        chosen = list(Episode.objects.filter(status__in=before).order_by("pk"))
        if not chosen:
            return
        episode, now_ms = self.random.choice(chosen), self.clock.now_ms()
        same = Episode.objects.filter(rule=episode.rule, fingerprint=episode.fingerprint, status=EpisodeStatus.OPEN)
        if after == EpisodeStatus.OPEN and same.exists():
            return
        end_ms = None if after == EpisodeStatus.OPEN else episode.end_ms or now_ms // STEP_MS * STEP_MS + STEP_MS
        with transaction.atomic():
            Episode.objects.filter(pk=episode.pk).update(status=after, end_ms=end_ms)
            hook.mark([episode.pk], now_ms=now_ms)

    def silence(self) -> None:
        now_ms = self.clock.now_ms()
        organisation = self.rules[0].app.organisation_id
        host, to_ms = self.random.choice("abc"), now_ms + self.random.choice([30_000, 300_000])
        self.silences.append((host, now_ms, to_ms))
        Silence.objects.create(
            organisation_id=organisation,
            matchers=f'host="{host}"',
            from_ms=now_ms,
            to_ms=to_ms,
            created_ms=now_ms,
        )
        hook.mark_organisation(organisation, now_ms=now_ms)

    def refuse(self) -> None:
        """Another receiver refuses from now on, or none: also what it was perhaps told before."""
        self.refuses = self.random.choice([None, *RECEIVERS])

    def reroute(self) -> None:
        rule = self.random.choice(self.rules)
        receivers = self.random.choice([[], [RECEIVERS[0]], list(RECEIVERS), list(RECEIVERS)])
        Rule.objects.filter(pk=rule.pk).update(receivers=receivers)
        rule.refresh_from_db()
        self.leave_out(rule, *rule.episodes.values_list("pk", flat=True))
        hook.mark_organisation(rule.app.organisation_id, now_ms=self.clock.now_ms())

    # --- a notifier ---------------------------------------------------------------------------------------------------

    def send(self, key: str, body: Mapping[str, Any]) -> str:
        """Take a notification, or fail in one of the ways in which receivers fail."""
        for receiver in body["receivers"]:
            self.take(receiver, key, body)
        return "heard"

    def take(self, receiver: str, key: str, body: Mapping[str, Any]) -> None:
        draw = 1.0 if self.quiet else self.random.random()
        if receiver == self.refuses and not self.quiet:
            raise DeliveryFailed("550 no such user", permanent=True)
        if draw < 0.08:
            raise Crash
        if draw < 0.16:
            raise DeliveryFailed("451 later")
        if draw < 0.2:
            raise DeliveryFailed("the connection broke", perhaps=True)
        self.hear(receiver, key, body)
        if draw < 0.26:
            raise DeliveryFailed("the answer was lost", perhaps=True)
        if draw < 0.34:
            raise Crash

    # --- the checker --------------------------------------------------------------------------------------------------

    def hear(self, receiver: str, key: str, body: Mapping[str, Any]) -> None:
        """Check what arrives against all that arrived before."""
        name = f"{receiver} {key}"
        if name in self.bodies:
            if self.bodies[name] != body:
                raise Violation(f"{key} came with two bodies")
            return
        self.bodies[name] = body
        group = key.rsplit(".", 1)[0]
        if body["n"] <= self.numbers.get((receiver, group), 0):
            raise Violation(f"{key} was overtaken")
        self.numbers[receiver, group] = body["n"]
        for line in body["lines"]:
            self.hear_line(receiver, line, body["at_ms"])

    def hear_line(self, receiver: str, line: Mapping[str, Any], at_ms: int) -> None:
        pair = (receiver, line["episode"])
        before, unsure = self.levels.get(pair, "nothing"), line["perhaps"] or pair in self.doubts
        after = {
            "firing": "open",
            "repeat": "open",
            "reopened": "open",
            "retracted": "void",
            "reinstated": "open" if line["end_ms"] is None else "ended",
        }.get(line["kind"], "ended")
        first = line["kind"] in ("firing", "brief", "late")
        if before == "nothing" and not first and not unsure:
            raise Violation(f"{receiver} heard {line['kind']} of {line['episode']} before it heard of it")
        if before == after and line["kind"] != "repeat" and not unsure:
            raise Violation(f"{receiver} heard twice that {line['episode']} is {after}")
        if first and before == "nothing" and not unsure and self.is_silenced(line, at_ms):
            raise Violation(f"{receiver} heard of {line['episode']} under a silence")
        self.levels[pair] = after

    def is_silenced(self, line: Mapping[str, Any], at_ms: int) -> bool:
        host = line["labels"]["host"]
        return any(each == host and from_ms <= at_ms < to_ms for each, from_ms, to_ms in self.silences)

    def run(self, steps: int) -> None:
        """Live through a history, then let all faults end and everything be told, and check what all believe."""
        for _ in range(steps):
            self.act()
            self.doubts |= set(LastWord.objects.filter(is_doubtful=True).values_list("receiver__target", "episode"))
        self.quiet = True
        for _ in range(14):
            self.act()
            self.clock.advance(20 * 60_000)
        self.check_end()

    def check_end(self) -> None:
        for episode in Episode.objects.select_related("rule"):
            for receiver in RECEIVERS:
                level = self.levels.get((receiver, episode.pk))
                if level is not None and level != episode.status:
                    raise Violation(f"{receiver} believes that {episode.pk} is {level}, but it is {episode.status}")
                if level is None and self.is_owed(receiver, episode):
                    raise Violation(f"{receiver} never heard of {episode.pk}")

    def is_owed(self, receiver: str, episode: Episode) -> bool:
        """Whether the receiver must have heard of the episode by now, whatever happened before."""
        if episode.status == EpisodeStatus.OPEN:
            return receiver in episode.rule.receivers
        was_silenced = any(host == episode.fingerprint for host, _, _ in self.silences)
        is_left_out = (receiver, episode.pk) in self.left_out
        return episode.status == EpisodeStatus.ENDED and not is_left_out and not was_silenced
