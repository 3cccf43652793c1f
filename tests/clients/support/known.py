"""Samples that are known before a client sends them. Queries must return each of them once, and no others.

``Known.make`` draws values of several kinds (integers, with two digits, with all 53 bits, very small, very large) and
times off the grid. All tests share a product, so each name is used once, and none is the prefix of another.
``read_back`` queries the product through Prometheus' API; ``assert_same`` compares complete label sets, milliseconds
and the bits of values.
"""

import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from spm.arrays import F64, I64
from spm.limits import TAIL_AGE_MS
from tests.servers.product import Served

Labels = tuple[tuple[str, str], ...]
Samples = dict[Labels, dict[int, float]]
Naming = Callable[[str, str, str], Mapping[str, str]]  # (name, field, host) → the labels a reader sees
STEP_MS = 10_000
_READ_WITHIN_S = 180  # of a busy machine; as a rule it is one or two
_DIGITS = 15  # that some programs keep of a value
_given: set[str] = set()  # names of this run


def by_field(name: str, field: str, host: str) -> Mapping[str, str]:
    """Returns the series of a measurement, tag and field of line protocol."""
    return {"__name__": f"{name}_{field}", "host": host}


@dataclass(frozen=True, slots=True)
class Known:
    """``ts`` i64[steps, hosts] ms and ``values`` f64[steps, hosts, fields] of hosts h0… and fields f0… ."""

    name: str
    ts: I64
    values: F64

    @classmethod
    def make(
        cls,
        name: str,
        *,
        hosts: int = 10,
        fields: int = 10,
        steps: int = 100,
        digits: bool = False,
        plain: bool = False,
        ahead_ms: int | None = None,
        step_ms: int = STEP_MS,
    ) -> "Known":
        """10,000 samples that end a little before now, or begin ``ahead_ms`` after it.

        ``digits``: only such as 15 digits can say; ``plain``: whole numbers and hundredths alone.
        """
        overlapping = [other for other in _given if f"{other}_".startswith(f"{name}_") or name.startswith(f"{other}_")]
        assert overlapping == [], f"{name}: another test reads these samples as its own: {overlapping}"
        _given.add(name)
        random = np.random.default_rng(sum(map(ord, name)))
        kinds = (
            lambda n: random.integers(-1_000, 1_000, n).astype(np.float64),
            lambda n: random.integers(0, 100_000, n) / 100.0,
            lambda n: random.standard_normal(n),
            lambda n: random.random(n) * 1e-300,
            lambda n: -random.random(n) * 1e300,
        )[: 2 if plain else 5]
        values = np.stack([kinds[f % len(kinds)]((steps, hosts)) for f in range(fields)], axis=2)
        if digits:
            values = np.array([float(f"{v:.{_DIGITS}g}") for v in values.ravel().tolist()]).reshape(values.shape)
        now_ms = int(time.time()) // 10 * 10_000
        first = now_ms - 60_000 - steps * step_ms if ahead_ms is None else now_ms + ahead_ms
        times = first + step_ms * np.arange(steps, dtype=np.int64)[:, None] + 37 * np.arange(hosts, dtype=np.int64)
        return cls(name, times, values)

    def __len__(self) -> int:
        return self.values.size

    @property
    def steps(self) -> int:
        """The number of reports of each host."""
        return int(self.values.shape[0])

    def reports(self, step: int) -> Iterator[tuple[str, int, dict[str, float]]]:
        """(host, ms, value by field) of one step."""
        for host, row in enumerate(self.values[step].tolist()):
            yield f"h{host}", int(self.ts[step, host]), {f"f{f}": value for f, value in enumerate(row)}

    def samples(self, naming: Naming = by_field) -> Samples:
        """Returns the samples that queries must return."""
        samples: Samples = {}
        for step in range(self.steps):
            for host, ms, fields in self.reports(step):
                for field, value in fields.items():
                    samples.setdefault(labels_of(naming(self.name, field, host)), {})[ms] = value
        return samples

    def lines(self, unit: str = "000000") -> str:
        """Line protocol, times in ns; in ms with nothing as ``unit``."""
        return "".join(self.report(step, unit) for step in range(self.steps))

    def report(self, step: int, unit: str = "000000") -> str:
        """The lines of one step."""
        text = []
        for host, ms, fields in self.reports(step):
            pairs = ",".join(f"{field}={value!r}" for field, value in fields.items())
            text.append(f"{self.name},host={host} {pairs} {ms}{unit}\n")
        return "".join(text)

    def page(self, step: int) -> str:
        """One step as a page of Prometheus' text format, with its times."""
        text = [f"# TYPE {self.name}_f{f} gauge\n" for f in range(self.values.shape[2])]
        for host, ms, fields in self.reports(step):
            text += [f'{self.name}_{field}{{host="{host}"}} {value!r} {ms}\n' for field, value in fields.items()]
        return "".join(sorted(text, key=lambda line: line.removeprefix("# TYPE ").partition(" ")[0].partition("{")[0]))


def labels_of(labels: Mapping[str, str]) -> Labels:
    """A label set as a key."""
    return tuple(sorted(labels.items()))


def read_back(served: Served, name: str) -> Samples:
    """Every sample of metrics whose names begin so, of the last two days."""
    return read(served, f'{{__name__=~"{name}_.+"}}[2d]')


def read(served: Served, selector: str) -> Samples:
    """Every sample of a range selector that ends an hour after now."""
    connection = served.connection()
    try:
        data = served.ask(connection, "query", query=selector, time=time.time() + 3_600)
    finally:
        connection.close()
    result = data["result"]
    assert isinstance(result, list)
    return {labels_of(series["metric"]): _column(series["values"]) for series in result}


def _column(pairs: list[tuple[float, str]]) -> dict[int, float]:
    """Returns the values by ms; a repeated time is an error."""
    samples = {round(at * 1000): float(value) for at, value in pairs}
    assert len(samples) == len(pairs), "a series has two samples of one time"
    return samples


def assert_same(samples: Samples, expected: Samples) -> int:
    """Nothing is missing, nothing is extra, no bit differs; returns how many samples were compared."""
    have, want = _flat(samples), _flat(expected)
    missing, extra = want.keys() - have.keys(), have.keys() - want.keys()
    assert (len(missing), len(extra)) == (0, 0), f"missing: {sorted(missing)[:2]}, extra: {sorted(extra)[:2]}"
    assert (differ := [(k, want[k].hex(), have[k].hex()) for k in want if want[k] != have[k]]) == [], differ[:3]
    return len(want)


def wait_for(served: Served, name: str, count: int, seconds: float = _READ_WITHIN_S) -> Samples:
    """Returns the samples a little after so many are stored, or after a timeout; a comparison then shows what lacks.

    A reader may be a second behind (``TAIL_AGE_MS``), so what came late as well is seen.
    """
    until = time.monotonic() + seconds
    while sum(map(len, read_back(served, name).values())) < count and time.monotonic() < until:
        time.sleep(0.5)
    time.sleep(1.2 * TAIL_AGE_MS / 1000)
    return read_back(served, name)


def _flat(samples: Samples) -> dict[tuple[Labels, int], bytes]:
    return {(labels, ms): struct.pack(">d", v) for labels, column in samples.items() for ms, v in column.items()}
