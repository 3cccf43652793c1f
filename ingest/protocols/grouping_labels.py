"""Adds the labels of an address to every series of a body, as Pushgateway's paths and ``extra_label`` do.

Enter by ``add_labels``; ``read_extra_labels`` reads them from parameters.

They replace labels of the same name in the body: the address names the group, and other values in the body would split
it. Series that become one keep their samples in the order of the body.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from ingest.protocols.common import naming
from spm.errors import BadMessage, LimitExceeded
from spm.limits import LABELS_MAX, MESSAGE_SERIES_BYTES_MAX
from spm.wire import Parsed, SeriesTable, canonical, parse_canonical


def read_extra_labels(parameters: Iterable[str]) -> dict[str, str]:
    """Returns the labels of parameters ``extra_label=name=value``; ``BadMessage``: one has no such form."""
    labels: dict[str, str] = {}
    for text in parameters:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise BadMessage("a parameter extra_label is no label", got=text[:120], wanted="extra_label=name=value")
        labels[name] = value
    return labels


def add_labels(parsed: Parsed, labels: Mapping[str, str]) -> Parsed:
    """Returns the samples with these labels on each series; ``BadMessage``: the labels are not valid."""
    pairs = [
        (name.encode("utf-8", "surrogatepass"), text.encode("utf-8", "surrogatepass")) for name, text in labels.items()
    ]
    if fault := naming.labels_fault(pairs):
        raise BadMessage(f"a label of the address is not valid: {fault}", got=str(dict(labels))[:120])
    numbers: dict[bytes, int] = {}
    size = 0
    places = np.empty(len(parsed.series), np.int32)
    for number in range(len(parsed.series)):
        metric, own = parse_canonical(parsed.series.canonical(number))
        merged = {**own, **labels}
        if len(merged) > LABELS_MAX:
            raise BadMessage(f"with those of the address a series has {naming.TOO_MANY_LABELS}", got=metric[:80])
        form = canonical(metric, merged)
        size += len(form) if form not in numbers else 0
        if size > MESSAGE_SERIES_BYTES_MAX:  # checked for each series: a long address times many short lines
            raise LimitExceeded("too many bytes of series names and labels in one body", remedy="Send smaller bodies.")
        places[number] = numbers.setdefault(form, len(numbers))
    return replace(
        parsed,
        series=SeriesTable.from_canonical(list(numbers)),
        series_index=places[parsed.series_index],
        exemplars=tuple(replace(each, series=_with_labels(each.series, labels)) for each in parsed.exemplars),
    )


def _with_labels(form: bytes, labels: Mapping[str, str]) -> bytes:
    metric, own = parse_canonical(form)
    return canonical(metric, {**own, **labels})
