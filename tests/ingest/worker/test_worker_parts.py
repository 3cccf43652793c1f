"""The pure parts of a worker: which queues are whose, and what its metrics say."""

import urllib.error
import urllib.request

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.transport.topology import SEATS, Address, dead_arguments, is_work_key, share, work_arguments
from ingest.worker.metrics import ConsumerTally, MetricsServer, metrics_text
from spm import limits

QUEUES = Address("", 16).queues()
seats = st.sets(st.integers(0, SEATS - 1), min_size=1).map(sorted)


@given(seats)
def test_every_queue_belongs_to_exactly_one_of_the_workers_that_are_there(taken: list[int]) -> None:
    shares = [share(QUEUES, taken, own) for own in taken]
    assert sorted(name for part in shares for name in part) == sorted(q.name for q in QUEUES)


@given(seats)
def test_no_worker_has_two_queues_more_than_another(taken: list[int]) -> None:
    sizes = [len(share(QUEUES, taken, own)) for own in taken]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("more", [0, 1])
def test_bodies_go_to_the_queue_of_large_ones_from_one_byte_over_the_bound_on(more: int) -> None:
    key = Address("", 16).route(1, "h", limits.AMQP_PARTITION_BODY_BYTES_MAX + more)
    assert (key == "bulk") == bool(more)


@pytest.mark.parametrize(
    ("key", "ours"), [("bulk", True), ("015", True), ("15", False), ("0015", False), ("spm_a.h", False), ("", False)]
)
def test_only_our_own_messages_have_keys_of_three_digits(key: str, ours: bool) -> None:
    assert is_work_key(key) is ours


def test_no_queue_is_left_to_the_number_of_deliveries_that_a_broker_allows_by_itself() -> None:
    """RabbitMQ 4 allows twenty unasked, and deletes what has nowhere to go then."""
    assert work_arguments()["x-delivery-limit"] == limits.AMQP_DELIVERY_LIMIT
    assert dead_arguments()["x-delivery-limit"] == 10**9


def test_metrics_say_what_was_written_and_how_long_it_took() -> None:
    tally = ConsumerTally(redelivered=3, dead=1, oldest_ms=9_000)
    for took_s in (0.005, 0.02, 50.0):
        tally.count_batch(messages=10, samples=100, fill=0.5, took_s=took_s)
    lines = metrics_text(tally, 10_500, {"q": 7}).splitlines()
    for line in (
        "spm_worker_messages_total 30",
        "spm_worker_samples_total 300",
        "spm_worker_batch_fill_total 1.5",
        "spm_worker_redelivered_total 3",
        "spm_worker_dead_letters_total 1",
        "spm_worker_oldest_unacked_seconds 1.500",
        'spm_worker_queue_depth{queue="q"} 7',
        'spm_worker_write_seconds_bucket{le="0.01"} 1',
        'spm_worker_write_seconds_bucket{le="0.03"} 2',
        'spm_worker_write_seconds_bucket{le="30.0"} 2',
        'spm_worker_write_seconds_bucket{le="+Inf"} 3',
    ):
        assert line in lines


def test_metrics_are_answered_at_their_own_path_alone() -> None:
    server = MetricsServer(0, lambda: "a 1\n")
    try:
        at = f"http://127.0.0.1:{server.port}"
        assert urllib.request.urlopen(f"{at}/metrics", timeout=60).read() == b"a 1\n"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{at}/", timeout=60)
    finally:
        server.close()
