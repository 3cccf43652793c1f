"""Claims about the kernels of spm/store: all that runs was compiled by ``warm``, and nothing reads past its
arrays.
"""

import subprocess
import sys

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spm.store.encoding import kernels

PROGRAM = """
import numpy as np
from tests.support.store_columns import compile_kernels
from spm.store.encoding import kernels
from spm.store.versions import kernels as version_kernels
compile_kernels()
both = vars(kernels) | vars(version_kernels)
compiled = {n: f for n, f in both.items() if hasattr(f, "signatures") and n[0] != "_"}
before = {n: list(f.signatures) for n, f in compiled.items()}
assert all(before.values()), before

from spm.wire import Envelope
from spm.store.versions import generations
from spm.store.manifest import Entry, Generation, Manifest, Replay, State
from spm.store import keys, manifest
from spm.store.backends.memory import MemoryBackend
from spm.limits import HOUR_MS
from ingest.writer import Writer
from spm.store.keys import PlacementTable, LogKey
from spm.store.versions.merge import Piece; from spm.store.versions.merge import merge
from spm.query.request.batches import Matcher
from tests.support.store_reader import look, reader
from tests.support.faults import keys_of
from tests.support.rows import APP, START, HOUR, envelope, plain

times = [START + t * 9000 + h * HOUR_MS for t in range(1, 90) for h in (0, 1)]
sent = [
    Envelope.from_bytes(envelope([(s, ts, v) for s in range(5) for ts in times], sequence=i).to_bytes())
    for i, v in enumerate((1.0, 2.5, float("nan"), 1e300))
]
backend = MemoryBackend()
writer = Writer(backend, PlacementTable())
for one in sent:
    writer.write([one, one])
assert look(reader(backend)) == plain(sent)
entries = {}
for samples_max in (50, 10**6):
    for hour in (HOUR, HOUR + 1):
        [shard] = PlacementTable().all_shards(APP)
        rows = list(backend.scan("log", *keys.log_range(shard, APP, hour)))
        piece = merge([Piece.of_row(row) for _, row in rows])
        unit = generations.HourShard(shard, APP, hour)
        made = generations.paginate(unit, samples_max, piece, parents=(), batches=(), samples_max=samples_max)
        backend.put([("chunks", made.chunks), ("timelines", made.timelines), ("inputs", [made.inputs])])
        entries[shard, hour] = Entry(State((*entries.get((shard, hour), Entry()).state.generations, made.generation)))
    day = HOUR // 24
    backend.put([("manifest", [(keys.manifest(APP, day), {b"v": manifest.encode(Manifest(samples_max, 0, entries))})])])
    assert look(reader(backend)) == plain(sent)
    backend.delete("pending", [(k, None) for k in keys_of(backend, "pending")])
    storage = reader(backend)
    assert look(storage) == plain(sent)
    look(storage, START + 5, START + 500_000)
    storage.select_hours([Matcher("__name__", "=~", ".+")], HOUR, HOUR + 1)
after = {n: list(f.signatures) for n, f in compiled.items()}
new = {n: [s for s in after[n] if s not in before[n]] for n in after if after[n] != before[n]}
assert not new, new
"""


def test_after_warming_up_nothing_is_compiled_while_writing_compacting_and_reading() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_warming_up_keeps_within_its_arrays() -> None:
    program = "from tests.support.store_columns import compile_kernels; compile_kernels()"
    interpreted = {"NUMBA_DISABLE_JIT": "1"}  # plain Python looks at every index
    done = subprocess.run([sys.executable, "-c", program], env=interpreted, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


near = st.builds(lambda upper, lower: upper << 32 | lower, st.integers(0, 3), st.integers(0, 3))  # equal upper halves
ids = st.lists(st.one_of(near, st.integers(0, (1 << 64) - 1)), max_size=60).flatmap(
    lambda some: st.lists(st.sampled_from(some), max_size=90).map(lambda again: some + again) if some else st.just([])
)


@settings(max_examples=300, deadline=None)
@given(ids)
def test_distinct_ids_are_sorted_and_numbered_as_numpy_does(some: list[int]) -> None:
    column = np.array(some, np.uint64)
    first, index = kernels.distinct(column)
    _, expected_first, expected_index = np.unique(column, return_index=True, return_inverse=True)
    assert (first.tolist(), index.tolist()) == (expected_first.tolist(), expected_index.tolist())
    assert (first.dtype.str, index.dtype.str) == ("<i8", "<i4")
