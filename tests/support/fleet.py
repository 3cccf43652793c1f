"""A synthetic fleet: hosts that report ten integer walks every ten seconds, as line protocol and as arrays.

The same fleet feeds the end-to-end test, the proofs and the benchmark, so that what was sent is always known as numpy
columns. Values walk by -1, 0 or 1 within 0..100, like the cpu-only set of the Time Series Benchmark Suite; times stand
on a grid or, with ``jitter_ms``, off it by a fixed-seed amount per host and step.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from spm.arrays import F64, I64

FIELDS = tuple(
    f"usage_{n}"
    for n in (
        "user",
        "system",
        "idle",
        "nice",
        "iowait",
        "irq",
        "softirq",
        "steal",
        "guest",
        "guest_nice",
    )
)
STEP_MS = 10_000


@dataclass(frozen=True, slots=True)
class Fleet:
    """``ts`` i64[steps, hosts] ms and ``values`` f64[steps, hosts, 10], and the lines that say the same."""

    ts: I64
    values: F64

    @classmethod
    def make(cls, *, hosts: int, steps: int, start_ms: int, jitter_ms: int = 0, seed: int = 1) -> "Fleet":
        """A fleet whose first samples lie one step after ``start_ms``."""
        random = np.random.default_rng(seed)
        moves = random.integers(-1, 2, (steps, hosts, len(FIELDS)), np.int8).astype(np.int32)
        moves[0] += random.integers(0, 101, (hosts, len(FIELDS)))
        walks = np.cumsum(moves, axis=0)
        folded = np.abs((walks + 100) % 200 - 100)  # a reflected walk: steps stay -1, 0 or 1
        grid = start_ms + STEP_MS * np.arange(1, steps + 1, dtype=np.int64)[:, None]
        off = random.integers(-jitter_ms, jitter_ms + 1, (steps, hosts)) if jitter_ms else 0
        return cls(np.broadcast_to(grid, (steps, hosts)) + off, folded.astype(np.float64))

    @property
    def hosts(self) -> int:
        """How many hosts."""
        return int(self.ts.shape[1])

    @property
    def steps(self) -> int:
        """How many reports of each host."""
        return int(self.ts.shape[0])

    def __len__(self) -> int:
        return self.values.size

    def lines(self, steps: range, hosts: range) -> bytes:
        """Line protocol (ms) of these steps of these hosts."""
        heads = [f"cpu,hostname=host_{h},region=eu-{h % 4},rack={h % 50} " for h in hosts]
        text = []
        for step in steps:
            rows = self.values[step, hosts.start : hosts.stop].astype(np.int64).tolist()
            times = self.ts[step, hosts.start : hosts.stop].tolist()
            for head, row, ts in zip(heads, rows, times, strict=True):
                text.append(head + ",".join(f"{n}={v}i" for n, v in zip(FIELDS, row, strict=True)) + f" {ts}\n")
        return "".join(text).encode()

    def large_bodies(self, lines: int = 10_000) -> Iterator[bytes]:
        """Bodies of about so many lines, all hosts in each, in the order of time."""
        size = max(1, lines // self.hosts)
        for at in range(0, self.steps, size):
            yield self.lines(range(at, min(self.steps, at + size)), range(self.hosts))

    def agent_bodies(self) -> Iterator[bytes]:
        """One body per host and step: ten values each, as agents send them."""
        for step in range(self.steps):
            for host in range(self.hosts):
                yield self.lines(range(step, step + 1), range(host, host + 1))
