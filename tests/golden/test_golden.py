"""Claims about bytes on disk: every format that was ever written is read for ever, and written again as it was."""

import zlib

import numpy as np
import pytest

from spm.store.encoding import blocks, codec
from tests.golden.make import FOLDER, GOLDEN

EACH = pytest.mark.parametrize("name", GOLDEN)
WRITTEN = pytest.mark.parametrize("name", [name for name, golden in GOLDEN.items() if golden.write])
# folder and name -> CRC-32 of the file, which must never change
FROZEN: dict[str, int] = {
    "ledger/announced-1": 0xA7655324,
    "ledger/folded-1": 0xF00C0F41,
    "ledger/ledger-1": 0x93BFC1F4,
    "ledger/ledger-2": 0xB67D077E,
    "ledger/ledger-2-totals": 0x837E5A4E,
    "ledger/mark-1": 0xC50D138C,
    "ledger/pending-1": 0x72280F06,
    "ledger/pending-2": 0xA0438147,
    "ledger/pending-2-epoch": 0x922E3967,
    "ledger/round-1": 0x21D99A09,
    "ledger/stamps-1": 0xD9990D4B,
    "ledger/vector-1": 0xF72F6F99,
    "runs/distribution-1": 0x1393DEB1,
    "runs/hours-1": 0x93D9040A,
    "runs/hours-2": 0xC736D29A,
    "runs/inputs-1": 0x0FB147C0,
    "runs/inputs-2": 0xABE08B63,
    "runs/manifest-1": 0x4F8D2C83,
    "runs/manifest-2": 0x0C273983,
    "runs/manifest-3": 0x18DFB569,
    "runs/month-1": 0x2D79C62E,
    "runs/month-2": 0xB7C7CA9A,
    "runs/retraction-1": 0xA008A8A7,
    "samples/chunk-1": 0xF6ADD7CA,
    "samples/chunk-1-dense": 0xC0B16196,
    "samples/chunk-2": 0x50FAB627,
    "samples/chunk-2-floats": 0xB025F4EC,
    "samples/columns-1": 0x9D366ED6,
    "samples/columns-1-dense": 0xA43757F3,
    "samples/dead-1": 0x0F14395F,
    "samples/envelope-1": 0x2B32D00A,
    "samples/log-1": 0x57DB1EC7,
    "samples/log-2": 0xA123014A,
    "samples/timelines-1": 0xB6D2476D,
    "samples/timelines-2": 0xCE78C126,
}


def flat(value: object) -> object:
    """A value as plain things: arrays as kind and bytes."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.tobytes()
    if isinstance(value, dict):
        return {name: flat(entry) for name, entry in value.items()}
    if hasattr(value, "__dataclass_fields__"):
        return {name: flat(getattr(value, name)) for name in value.__dataclass_fields__}
    return value


def test_every_golden_file_is_tested_and_frozen() -> None:
    result = {f"{path.parent.name}/{path.stem}": zlib.crc32(path.read_bytes()) for path in FOLDER.glob("*/*.bin")}
    assert result == FROZEN
    assert result.keys() == GOLDEN.keys()


@EACH
def test_golden_bytes_decode_to_what_was_written(name: str) -> None:
    raw = (FOLDER / f"{name}.bin").read_bytes()
    assert flat(GOLDEN[name].read(raw)) == flat(GOLDEN[name].value)


@WRITTEN
def test_the_same_value_is_written_as_the_same_bytes(name: str) -> None:
    write = GOLDEN[name].write
    assert write is not None
    assert write(GOLDEN[name].value) == (FOLDER / f"{name}.bin").read_bytes()


def test_every_version_that_is_read_has_a_golden_file() -> None:
    result = {tuple(raw[:2]) for raw in (path.read_bytes() for path in FOLDER.glob("*/*.bin"))}
    hours = {(blocks.HOURS, 1)}  # a row's file holds several cells, each a frame
    assert result | hours >= set(blocks.READERS)


# what keeps an older version, so that programs of both releases read it: days of few sources, chunks of few values
OLDER = ("runs/manifest-2", "samples/chunk-1-dense", "samples/columns-1-dense")


def test_a_newest_version_is_what_is_written() -> None:
    for name, golden in GOLDEN.items():
        kind, version = (FOLDER / f"{name}.bin").read_bytes()[:2]
        if golden.write and (kind, version) in blocks.READERS and name not in OLDER:
            assert version == blocks.versions_of(kind)[-1], name


def test_the_golden_files_hold_every_form_of_a_column() -> None:
    raw = (FOLDER / "samples/columns-1.bin").read_bytes()
    _, columns = blocks._COLUMNS.decode(blocks.unframe(raw[0], raw)[1])
    assert {form for _, form, *_ in columns} == set(range(codec.ZSTD + 1))
    assert {dtype for _, _, dtype, *_ in columns} == set(codec._DTYPES)
