"""Damaged bodies of the older forms, made by mutation: read or rejected within a second, never a crash."""

import os
import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from ingest.protocols.common.series_cache import SeriesCache
from ingest.protocols.influx import reader as influx_reader
from ingest.protocols.json import collectd
from ingest.protocols.json import samples as json_samples
from spm.errors import BadMessage, LimitExceeded
from spm.wire import Parsed
from tests.ingest.protocols.cpu import timed

NOW_MS = 1_700_000_000_000
CACHE = SeriesCache()

FORMS: dict[str, tuple[Callable[[bytes], Parsed], tuple[bytes, ...], tuple[bytes, ...]]] = {
    "line protocol": (
        lambda body: influx_reader.parse(body, now_ms=NOW_MS, cache=CACHE),
        (
            b'cpu,host=a,dc=b\\ c user=1i,idle=0.5,ok=t,note="a \\"b\\"" 1700000000000000000\ncpu user=2u\n',
            b"weather,location=us-midwest temperature=82,humidity=7.1e1 1465839830100400200\n# note\n",
        ),
        (b" ", b",", b"=", b'"', b"\\", b"\n", b"i", b"e9", b"-"),
    ),
    "JSON": (
        lambda body: json_samples.parse(body, now_ms=NOW_MS),
        (
            b'{"samples":[{"metric":"m","tags":{"host":"a"},"value":1.5,"time":1700000000000},{"metric":"n","value":"NaN"}]}',
            b'{"series":[{"metric":"m","tags":{"a":"b"},"times":[1,2,3],"values":[1,2.5,"+Inf"]}]}',
        ),
        (b"[", b"{", b'"', b",", b"}", b"1e999", b"null", b"\\u0000", b"-"),
    ),
    "collectd": (
        lambda body: collectd.parse(body, now_ms=NOW_MS),
        (
            b'[{"values":[1,null],"dsnames":["rx","tx"],"time":1700000000.123,"host":"h","plugin":"interface",'
            b'"plugin_instance":"eth0","type":"if_octets","type_instance":""}]',
        ),
        (b"[", b"{", b'"', b",", b"}", b"1e308", b"null", b"\\ud800", b"-"),
    ),
}


def _rows(read: Callable[[bytes], Parsed], body: bytes) -> int:
    """Returns how many samples a body has, and checks the place of each; 0 if the body is rejected."""
    with suppress(BadMessage, LimitExceeded):
        parsed = read(body)
        assert parsed.places is not None
        places = parsed.places(range(len(parsed.ts)))
        assert len(places) == len(parsed.ts)
        assert all(place >= 1 for place in places)
        return len(places)
    return 0


def bears_mutations(name: str, count: int) -> None:
    read, seeds, signs = FORMS[name]
    draw, sample_count = random.Random(count), 0
    for _ in range(count):
        body = bytearray(draw.choice(seeds))
        for _ in range(draw.randrange(1, 6)):
            at = draw.randrange(len(body) + 1)
            body[at : at + draw.randrange(4)] = draw.choice((*signs, draw.randbytes(2), bytes(body[at : at + 9]) * 2))
        rows, duration_s = timed(partial(_rows, read, bytes(body)))
        assert duration_s < 1.0, bytes(body)
        sample_count += rows
    assert sample_count > count // 50  # not everything is refused: the damage is of the interesting kind


@pytest.mark.parametrize("name", FORMS)
def test_mutated_bodies_are_read_or_rejected_and_nothing_else(name: str) -> None:
    bears_mutations(name, 10_000)


@pytest.mark.proof
@pytest.mark.parametrize("name", FORMS)
def test_proof_mutated_bodies_are_read_or_rejected_at_length(name: str) -> None:
    bears_mutations(name, int(os.environ.get("SPM_MUTATIONS", "1000000")))
