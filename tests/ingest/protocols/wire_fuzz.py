"""`python -m tests.ingest.protocols.wire_fuzz PARSER COUNT SEED`: mutated bodies for the readers of protobuf and OTLP's
JSON.

A good body is cut, spliced, repeated and filled with bytes that have a meaning in protobuf; the result must
be read or rejected with a known error, quickly, and the result must be consistent. Memory is bounded by the system.
Progress is printed, and at the end the slowest of all and the peak of memory.
"""

import json
import random
import resource
import sys
import time
from collections.abc import Callable

from ingest.protocols.common.series_cache import SeriesCache
from ingest.protocols.otlp import reader as otlp_reader
from ingest.protocols.prometheus import remote_write
from spm.errors import BadMessage, LimitExceeded
from spm.limits import FUTURE_MS
from spm.wire import Parsed
from tests.ingest.protocols import otlp_bodies as bodies
from tests.ingest.protocols.otlp_bodies import NOW, Metric, Point, Shown
from tests.ingest.protocols.remote_bodies import Series, request, request_v2

SECONDS_MAX = 1.0  # for one body of these sizes
MEMORY_BYTES = 6_000_000_000  # of addresses, of which a tenth is ever touched
TOKENS = tuple(
    map(bytes.fromhex, ("00", "ff", "80" * 9 + "01", "0a00", "12ffffffff0f", "7f", "0a8001", "2200", "ff" * 9 + "7f"))
)


SHOWN = Shown(0.5, trace="ab" * 16, labels={"user": "u"})


def corpus(parser: str) -> list[bytes]:
    """Good bodies to begin with."""
    labels = [("__name__", "http_requests_total"), ("code", "200"), ("job", "api" * 60)]
    series = [
        Series(
            labels,
            [(NOW, 1.5), (NOW + 1, 0.0)],
            exemplars=[([("trace_id", "t")], 1.0, 5)],
            histograms=1,
            metadata=(1, "help", "s"),
        ),
        Series([("__name__", "up")], [(NOW - n, float(n)) for n in range(20)]),
    ]
    if parser == "v1":
        return [request(series, [(1, "up", "help", "s")]), request(series[1:]), request([series[0]] * 5)]
    if parser == "v2":
        return [request_v2(series), request_v2(series, packed=False), request_v2([series[0]] * 5)]
    histogram = Point(count=6, total=1.5, counts=[1, 2, 3], bounds=[1.0, 2.0], least=0.1, most=9.0, exemplars=[SHOWN])
    exponential = Point(count=9, scale=3, zero=1, positive=(-3, [1, 0, 2]), negative=(4, [5]))
    summary = Point(count=2, quantiles=[(0.5, 1.0)], labels={"a": "b"})
    metrics = [
        Metric("g.x", "gauge", [Point(1, labels={"k": "v"}), Point(0.5)], unit="By"),
        Metric("s", "sum", [Point(2)], temporality=1, monotonic=True),
        Metric("h", "histogram", [histogram]),
        Metric("e", "exponentialHistogram", [exponential]),
        Metric("q", "summary", [summary]),
    ]
    named = {"resource": {"service.name": "shop", "os": "linux"}, "scope": {"name": "lib"}}
    selections = [metrics, metrics[:1], metrics[2:3], metrics[3:4]]
    if parser == "json":
        return [json.dumps(bodies.request_json(*some, **named)).encode() for some in selections]
    return [bodies.request(*some, **named) for some in selections]


def mutated(body: bytes, chance: random.Random) -> bytes:
    """The body after one to four changes."""
    raw = bytearray(body)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(raw) + 1)
        size = min(len(raw) - at, chance.choice((1, 2, 5, 20, 200)))
        kind = chance.randrange(6)
        if kind == 0 and at < len(raw):
            raw[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            raw[at : at + size] = b""
        elif kind == 2:
            raw[at:at] = chance.choice(TOKENS)
        elif kind == 3:
            raw[at:at] = raw[at : at + size] * chance.choice((1, 1, 3, 50))
        elif kind == 4 and at < len(raw):
            raw[at] = chance.randrange(256)
        else:
            other = chance.randrange(len(raw) + 1)
            raw[at : at + size] = raw[other : other + size]
    return bytes(raw[:200_000])


def readers() -> dict[str, Callable[[bytes], Parsed]]:
    """Each reader with a cache of its own."""
    one, two = SeriesCache(), SeriesCache()
    return {
        "v1": lambda body: remote_write.parse(body, now_ms=NOW, cache=one),
        "v2": lambda body: remote_write.parse_v2(body, now_ms=NOW, cache=one),
        "otlp": lambda body: otlp_reader.parse(body, "application/x-protobuf", now_ms=NOW, cache=two),
        "json": lambda body: otlp_reader.parse(body, "application/json", now_ms=NOW, cache=two),
    }


def check(parsed: Parsed) -> None:
    """Check that a result is consistent."""
    assert len(parsed.series_index) == len(parsed.ts) == len(parsed.values)
    if len(parsed.ts):
        assert 0 <= int(parsed.series_index.min()) <= int(parsed.series_index.max()) < len(parsed.series)
        assert int(parsed.ts.min()) >= 1
        assert int(parsed.ts.max()) <= NOW + FUTURE_MS
    assert all(one.reason for one in parsed.rejections)


def fuzz(parser: str, count: int, seed: int, *, progress: bool = False) -> tuple[int, float]:
    """Read so many mutated bodies; returns how many were accepted, and the CPU seconds of the slowest."""
    chance, read, good = random.Random(seed), readers()[parser], corpus(parser)
    accepted, slowest = 0, 0.0
    for body in good:
        check(read(body))  # compiles, too
    for number in range(count):
        body = mutated(chance.choice(good), chance)
        began = time.thread_time()
        try:
            check(read(body))
            accepted += 1
        except (BadMessage, LimitExceeded):
            pass
        except BaseException:
            print(f"{parser}: {body.hex()}", flush=True)
            raise
        slowest = max(slowest, time.thread_time() - began)
        if progress and (number + 1) % 50_000 == 0:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            print(
                f"{parser}: {number + 1} bodies, {accepted} read, slowest {slowest:.3f} s, peak {peak} MB", flush=True
            )
    return accepted, slowest


def main() -> None:
    """Run the long form, alone in its process."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    parser, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    accepted, slowest = fuzz(parser, count, seed, progress=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{parser}: {count} bodies in all, {accepted} read, slowest {slowest:.3f} s of CPU, peak {peak} MB")
    sys.exit(slowest > SECONDS_MAX)


if __name__ == "__main__":
    main()
