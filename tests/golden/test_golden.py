"""Claims about bytes on disk: every format that was ever written is read for ever, and written again as it was."""

import zlib

import numpy as np
import pytest

from spm.store.encoding import blocks, codec
from tests.golden.make import FOLDER, GOLDEN

EACH = pytest.mark.parametrize("name", GOLDEN)
WRITTEN = pytest.mark.parametrize("name", [name for name, golden in GOLDEN.items() if golden.write])
# name -> CRC-32 of the file, which must never change
FROZEN: dict[str, int] = {
    "announced-1": 0xA7655324,
    "chunk-1": 0xF6ADD7CA,
    "chunk-1-dense": 0xC0B16196,
    "chunk-2": 0x50FAB627,
    "chunk-2-floats": 0xB025F4EC,
    "columns-1": 0x9D366ED6,
    "columns-1-dense": 0xA43757F3,
    "dead-1": 0x0F14395F,
    "distribution-1": 0x1393DEB1,
    "envelope-1": 0x2B32D00A,
    "hours-1": 0x93D9040A,
    "hours-2": 0xC736D29A,
    "inputs-1": 0x0FB147C0,
    "inputs-2": 0xABE08B63,
    "ledger-1": 0x93BFC1F4,
    "ledger-2": 0xB67D077E,
    "ledger-2-totals": 0x837E5A4E,
    "log-1": 0x57DB1EC7,
    "log-2": 0xA123014A,
    "manifest-1": 0x4F8D2C83,
    "manifest-2": 0x0C273983,
    "manifest-3": 0x18DFB569,
    "mark-1": 0xC50D138C,
    "month-1": 0x2D79C62E,
    "month-2": 0xB7C7CA9A,
    "pending-1": 0x72280F06,
    "pending-2": 0xA0438147,
    "pending-2-epoch": 0x922E3967,
    "retraction-1": 0xA008A8A7,
    "round-1": 0x21D99A09,
    "stamps-1": 0xD9990D4B,
    "timelines-1": 0xB6D2476D,
    "timelines-2": 0xCE78C126,
    "vector-1": 0xF72F6F99,
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
    result = {path.stem: zlib.crc32(path.read_bytes()) for path in FOLDER.glob("*.bin")}
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
    result = {tuple(raw[:2]) for raw in (path.read_bytes() for path in FOLDER.glob("*.bin"))}
    hours = {(blocks.HOURS, 1)}  # a row's file holds several cells, each a frame
    assert result | hours >= set(blocks.READERS)


# what keeps an older version, so that programs of both releases read it: days of few sources, chunks of few values
OLDER = ("manifest-2", "chunk-1-dense", "columns-1-dense")


def test_a_newest_version_is_what_is_written() -> None:
    for name, golden in GOLDEN.items():
        kind, version = (FOLDER / f"{name}.bin").read_bytes()[:2]
        if golden.write and (kind, version) in blocks.READERS and name not in OLDER:
            assert version == blocks.versions_of(kind)[-1], name


def test_the_golden_files_hold_every_form_of_a_column() -> None:
    raw = (FOLDER / "columns-1.bin").read_bytes()
    _, columns = blocks._COLUMNS.decode(blocks.unframe(raw[0], raw)[1])
    assert {form for _, form, *_ in columns} == set(range(codec.ZSTD + 1))
    assert {dtype for _, _, dtype, *_ in columns} == set(codec._DTYPES)
