"""Enters the new series of many lines into the series cache at once, so that the kernel can read these lines.

Enter by ``enter_new``. A kernel splits the lines and finds what the cache does not know; each new head is read once,
all ids are hashed outside the cache's lock, and a kernel makes the entries. Lines that are not plain are left to
``exact``.
"""

from collections.abc import Sequence

import numpy as np

from ingest.protocols.common.series_cache import CacheGeneration, NewFields, new_fields
from ingest.protocols.influx.exact import plain_parts
from ingest.protocols.influx.kernels import FIELDS_MAX, find_new
from spm.arrays import I32, I64, U8

_NAMES_MAX = 4_096  # fields that are entered at once
_NAME_BYTES = 4  # or more, with value and delimiters


def enter_new(
    generation: CacheGeneration, text: bytes, spans: Sequence[tuple[int, int, int]], rules: I64, budget: int
) -> tuple[int, int, int]:
    """Enter new series of lines; returns (how many fields were new, the rest of ``budget``, where the last span ended).

    A span of ``text`` is where lines start and end, and the row of their rules.
    """
    size = sum(end - start for start, end, _ in spans)
    rows = max(FIELDS_MAX, min(_NAMES_MAX, size // _NAME_BYTES))
    heads, names = np.empty((rows, 3), np.int64), np.empty((rows, 3), np.int64)
    tables: I32 = np.zeros((2, 2 << rows.bit_length()), np.int32)
    raw: U8 = np.frombuffer(text, np.uint8)
    head_count, name_count, stopped = find_new(
        raw, np.array(spans, np.int64), rules, generation.view(), heads, names, tables
    )
    names_of: list[list[bytes]] = [[] for _ in range(head_count)]
    for start, end, head in names[:name_count].tolist():
        names_of[head].append(text[start:end])
    fields: list[NewFields] = []
    for (start, end, _), of_head in zip(heads[:head_count].tolist(), names_of, strict=True):
        parts = plain_parts(text[start:end], of_head)
        if parts is not None:
            fields.append(new_fields(text[start:end], *parts, of_head))
    added, budget = generation.enter_fields(fields, budget) if fields else (0, budget)
    return added, budget, int(stopped)
