"""Stores with faults around a good one: they record every call, fail at a chosen one, or run a hook before it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from spm.errors import StoreUnavailable
from spm.store.backends.base import Backend, Reader, Row, Step, put_new_apart, put_then_get_apart


class Faulty:
    """Passes every call on. The calls from number ``fails_at`` on raise: before the act, or after it (a lost answer).

    A ``put`` counts one call per step, since a store may stop between any two of them.
    """

    def __init__(self, inner: Backend, *, fails_at: int | None = None, lost_answer: bool = False) -> None:
        self.inner, self.fails_at, self.lost_answer = inner, fails_at, lost_answer
        self.calls: list[str] = []
        self.hook: Callable[[str], None] = lambda call: None

    def _act(self, call: str, act: Callable[[], object]) -> object:
        self.calls.append(call)
        self.hook(call)
        failing = self.fails_at is not None and len(self.calls) > self.fails_at
        if failing and not (self.lost_answer and len(self.calls) == self.fails_at + 1):  # type: ignore[operator]
            raise StoreUnavailable(f"no answer to {call}")
        done = act()
        if failing:
            raise StoreUnavailable(f"the answer to {call} was lost")
        return done

    def put(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self._act(f"put {step[0]}", lambda step=step: self.inner.put([step]))  # type: ignore[misc]

    def get(
        self, table: str, keys: Sequence[bytes], columns: Sequence[bytes] | None = None
    ) -> list[dict[bytes, bytes] | None]:
        return self._act(f"get {table}", lambda: self.inner.get(table, keys, columns))  # type: ignore[return-value]

    def scan(self, table: str, start: bytes, stop: bytes, **how: object) -> Iterator[Row]:
        return self._act(f"scan {table}", lambda: self.inner.scan(table, start, stop, **how))  # type: ignore[arg-type, return-value]

    def check_and_put(self, table: str, key: bytes, column: bytes, expected: bytes | None, value: bytes) -> bool:
        return bool(self._act(f"check {table}", lambda: self.inner.check_and_put(table, key, column, expected, value)))

    def check_and_put_many(self, table: str, column: bytes, rows: Sequence[tuple[bytes, bytes]]) -> list[bytes | None]:
        return self._act(f"check {table}", lambda: self.inner.check_and_put_many(table, column, rows))  # type: ignore[return-value]

    def put_new(
        self, table: str, column: bytes, rows: Sequence[tuple[bytes, bytes]], steps: Sequence[Step]
    ) -> list[bytes | None]:
        return put_new_apart(self, table, column, rows, steps)

    def put_then_get(
        self, steps: Sequence[Step], table: str, keys: Sequence[bytes], columns: Sequence[bytes]
    ) -> list[dict[bytes, bytes] | None]:
        return put_then_get_apart(self, steps, table, keys, columns)

    def delete(self, table: str, cells: Sequence[tuple[bytes, Sequence[bytes] | None]]) -> None:
        self._act(f"delete {table}", lambda: self.inner.delete(table, cells))

    def snapshot(self) -> AbstractContextManager[Reader]:
        return self._snapshot()

    @contextmanager
    def _snapshot(self) -> Iterator[Reader]:
        self.hook("snapshot wanted")
        with self.inner.snapshot() as reader:
            self.hook("snapshot taken")
            yield self if reader is self.inner else reader

    def close(self) -> None:
        self.inner.close()


def flip(backend: Backend, table: str, key: bytes, column: bytes, bit: int = 80) -> None:
    """Damage one bit of a stored cell, as a disk would."""
    [row] = backend.get(table, [key])
    assert row is not None
    raw = bytearray(row[column])
    raw[bit // 8 % len(raw)] ^= 1 << bit % 8
    backend.put([(table, [(key, {column: bytes(raw)})])])


def keys_of(backend: Backend, table: str) -> list[bytes]:
    """Every row of a table."""
    return [key for key, _ in backend.scan(table, b"", b"\xff" * 64, keys_only=True)]
