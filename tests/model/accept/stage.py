"""A stage on which real code plays many processes at once: one step at a time, in an order that a seed decides.

Every actor is a thread that stops before each call to the store (``Stage.pause``); the stage resumes one at a time,
so that no two ever run at once and a seed always gives the same history. ``Shaky`` is the store they see: of any write
the answer may be lost, before or after it is done, or the write may come in late, when somebody has long acted on its
failure. An actor may be killed between any two steps.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import numpy as np

from spm.errors import StoreUnavailable
from spm.store.backends.base import Backend, Reader, Row, Step, put_new_apart, put_then_get_apart

T = TypeVar("T")


class Killed(BaseException):
    """This actor's process was killed: no handler of errors may go on."""


class Actor:
    """One thread, and whether it or the stage may run."""

    def __init__(self, stage: "Stage", name: str, act: Callable[[], None]) -> None:
        self.name, self.done, self.killed = name, False, False
        self.error: BaseException | None = None
        self._stage, self._act = stage, act
        self._turn, self._over = threading.Semaphore(0), threading.Semaphore(0)
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def step(self) -> None:
        """Let it go on to its next pause, or its end; raises what it raised."""
        self._stage.on = self
        self._turn.release()
        self._over.acquire()
        self._stage.on = None
        if self.error is not None:
            raise self.error

    def kill(self) -> None:
        """Kill the actor at the step it has reached."""
        self.killed = True
        while not self.done:
            self.step()

    def wait(self) -> None:
        """Called by the actor: end the turn, and wait for the next."""
        if not self.killed:
            self._over.release()
            self._turn.acquire()
        if self.killed:
            raise Killed

    def _run(self) -> None:
        self._turn.acquire()
        try:
            if not self.killed:
                self._act()
        except Killed:
            pass
        except BaseException as error:
            self.error = error
        finally:
            self.done = True
            self._over.release()


class Stage:
    """The actors, what has happened, and the writes still under way to the store."""

    def __init__(self, seed: int, loss: float) -> None:
        self.random = np.random.default_rng(seed)
        self.numbers = np.random.default_rng((seed, 1))  # those that the product draws: batches, nonces
        self.loss = loss
        self.on: Actor | None = None
        self.actors: list[Actor] = []
        self.limbo: list[tuple[str, Callable[[], object]]] = []
        self.trace: list[str] = []

    def chance(self, probability: float) -> bool:
        """Whether something of this probability happens now."""
        return bool(self.random.random() < probability)

    def choice(self, of: Sequence[T]) -> T:
        """One of these."""
        return of[int(self.random.integers(len(of)))]

    def enter(self, name: str, act: Callable[[], None]) -> Actor:
        """One more actor."""
        actor = Actor(self, name, act)
        self.actors.append(actor)
        return actor

    def step(self, actor: Actor) -> None:
        """One turn of an actor."""
        actor.step()
        if actor.done:
            self.actors.remove(actor)

    def kill(self, actor: Actor) -> None:
        """The end of an actor."""
        self.say(f"{actor.name} DIES")
        actor.kill()
        self.actors.remove(actor)

    def pause(self, label: str) -> None:
        """Called by actors before everything that others can see."""
        if self.on is not None:
            actor = self.on
            self.say(f"{actor.name}: {label}")
            actor.wait()

    def say(self, what: str) -> None:
        """One line of what has happened."""
        self.trace.append(what)

    def act(self, label: str, act: Callable[[], T]) -> T:
        """A write: done and answered, or done or not and not answered, or done later."""
        self.pause(label)
        if self.on is None or not self.chance(self.loss):
            return act()
        fate = self.choice(("refused", "answer lost", "late"))
        self.say(f"   {fate}: {label}")
        if fate == "answer lost":
            act()
        if fate == "late":
            self.limbo.append((label, act))
        raise StoreUnavailable(f"{fate}: {label}")

    def land(self) -> None:
        """Something that was late comes in."""
        label, act = self.limbo.pop(int(self.random.integers(len(self.limbo))))
        self.say(f"   late request lands: {label}")
        act()


class Shaky:
    """The store as actors see it; a put is as many requests as it has rows."""

    def __init__(self, inner: Backend, stage: Stage) -> None:
        self.inner, self._stage = inner, stage

    def put(self, steps: Sequence[Step]) -> None:
        for table, rows in steps:
            for row in rows:
                self._stage.act(f"put {table}", lambda table=table, row=row: self.inner.put([(table, [row])]))  # type: ignore[misc]

    def get(
        self, table: str, keys: Sequence[bytes], columns: Sequence[bytes] | None = None
    ) -> list[dict[bytes, bytes] | None]:
        self._stage.pause(f"get {table}")
        return self.inner.get(table, keys, columns)

    def scan(self, table: str, start: bytes, stop: bytes, **how: object) -> Iterator[Row]:
        self._stage.pause(f"scan {table}")
        return iter(list(self.inner.scan(table, start, stop, **how)))  # type: ignore[arg-type]

    def check_and_put(self, table: str, key: bytes, column: bytes, expected: bytes | None, value: bytes) -> bool:
        return self._stage.act(
            f"check {table} {column[:1]!r}", lambda: self.inner.check_and_put(table, key, column, expected, value)
        )

    def check_and_put_many(self, table: str, column: bytes, rows: Sequence[tuple[bytes, bytes]]) -> list[bytes | None]:
        return self._stage.act(f"check {table}", lambda: self.inner.check_and_put_many(table, column, rows))

    def put_new(
        self, table: str, column: bytes, rows: Sequence[tuple[bytes, bytes]], steps: Sequence[Step]
    ) -> list[bytes | None]:
        return put_new_apart(self, table, column, rows, steps)

    def put_then_get(
        self, steps: Sequence[Step], table: str, keys: Sequence[bytes], columns: Sequence[bytes]
    ) -> list[dict[bytes, bytes] | None]:
        return put_then_get_apart(self, steps, table, keys, columns)

    def delete(self, table: str, cells: Sequence[tuple[bytes, Sequence[bytes] | None]]) -> None:
        for cell in cells:
            self._stage.act(f"delete {table}", lambda cell=cell: self.inner.delete(table, [cell]))  # type: ignore[misc]

    def snapshot(self) -> AbstractContextManager[Reader]:
        return nullcontext(self)

    def close(self) -> None:
        return
