"""A worker's own metrics, in Prometheus' text form on a loopback port: ``SPM_WORKER_METRICS_PORT`` (0: none).

``ConsumerTally`` counts what the consumer does. It is plain numbers, written by one thread and read by another, which
may see one of them a moment before the other. ``metrics_text`` formats them; ``MetricsServer`` answers ``GET /metrics``
from this machine alone.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LATENCIES_S = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # upper bounds of the histogram's buckets
PREFIX = "spm_worker_"


@dataclass(slots=True)
class ConsumerTally:
    """What a consumer has done since its start."""

    messages: int = 0
    samples: int = 0
    batches: int = 0
    fill_sum: float = 0.0
    redelivered: int = 0
    dead: int = 0
    dead_letters_stored: int = 0  # from the queue of dead letters
    given_back: int = 0
    retries: int = 0
    write_s: float = 0.0
    writes: list[int] = field(default_factory=lambda: [0] * (len(LATENCIES_S) + 1))
    oldest_ms: int | None = None  # when the oldest message arrived that is not settled

    def count_batch(self, *, messages: int, samples: int, fill: float, took_s: float) -> None:
        """Count a batch that is durable."""
        self.messages, self.samples, self.batches = self.messages + messages, self.samples + samples, self.batches + 1
        self.fill_sum, self.write_s = self.fill_sum + fill, self.write_s + took_s
        self.writes[sum(took_s > end for end in LATENCIES_S)] += 1

    def __add__(self, other: "ConsumerTally") -> "ConsumerTally":
        """Return what two consumers have done together."""
        plain = (f.name for f in fields(self) if f.name not in ("writes", "oldest_ms"))
        sums = {name: getattr(self, name) + getattr(other, name) for name in plain}
        writes = [one + another for one, another in zip(self.writes, other.writes, strict=True)]
        oldest = [ms for ms in (self.oldest_ms, other.oldest_ms) if ms is not None]
        return ConsumerTally(**sums, writes=writes, oldest_ms=min(oldest, default=None))


def metrics_text(tally: ConsumerTally, now_ms: int, depths: Mapping[str, int]) -> str:
    """Return the tally and the depths of the worker's queues in Prometheus' text form."""
    counters = {
        "messages_total": tally.messages,
        "samples_total": tally.samples,
        "batches_total": tally.batches,
        "batch_fill_total": tally.fill_sum,
        "redelivered_total": tally.redelivered,
        "dead_letters_total": tally.dead,
        "dead_letters_kept_total": tally.dead_letters_stored,
        "given_back_total": tally.given_back,
        "store_retries_total": tally.retries,
    }
    lines = []
    for name, value in counters.items():
        lines += [f"# TYPE {PREFIX}{name} counter", f"{PREFIX}{name} {value:g}"]
    age = 0.0 if tally.oldest_ms is None else (now_ms - tally.oldest_ms) / 1000
    lines += [f"# TYPE {PREFIX}oldest_unacked_seconds gauge", f"{PREFIX}oldest_unacked_seconds {age:.3f}"]
    lines += [f"# TYPE {PREFIX}queue_depth gauge"]
    lines += [f'{PREFIX}queue_depth{{queue="{queue}"}} {depth}' for queue, depth in sorted(depths.items())]
    lines += [f"# TYPE {PREFIX}write_seconds histogram"]
    cumulative = 0
    for end, count in zip((*map(str, LATENCIES_S), "+Inf"), tally.writes, strict=True):
        cumulative += count
        lines.append(f'{PREFIX}write_seconds_bucket{{le="{end}"}} {cumulative}')
    lines += [f"{PREFIX}write_seconds_sum {tally.write_s:.6f}", f"{PREFIX}write_seconds_count {cumulative}"]
    return "\n".join(lines) + "\n"


class MetricsServer:
    """Answers ``/metrics`` on 127.0.0.1 from a thread of its own."""

    def __init__(self, port: int, text: Callable[[], str]) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(text))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()


def _handler(text: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_metrics = self.path == "/metrics"
            body = text().encode() if is_metrics else b"only /metrics\n"
            self.send_response(200 if is_metrics else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: nobody reads a log of these requests."""

    return Handler
