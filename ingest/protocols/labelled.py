"""Labels that an address adds to every series of a body, as Pushgateway's paths do. Enter by ``with_labels``.

They win over labels of the same name in the body: what stands in the address names the group, and a body that says
otherwise would split it. Series that become one keep their samples in the body's order.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ingest.protocols.common import naming
from spm.errors import BadMessage, LimitExceeded
from spm.limits import LABELS_MAX, MESSAGE_SERIES_BYTES_MAX
from spm.wire import Parsed, SeriesTable, canonical, parse_canonical


def with_labels(parsed: Parsed, labels: Mapping[str, str]) -> Parsed:
    """The same samples, each series with these labels; ``BadMessage`` for labels that cannot be."""
    pairs = [
        (name.encode("utf-8", "surrogatepass"), text.encode("utf-8", "surrogatepass")) for name, text in labels.items()
    ]
    if fault := naming.tags_fault(pairs):
        raise BadMessage(f"a label of the address cannot be taken: {fault}", got=str(dict(labels))[:120])
    numbers: dict[bytes, int] = {}
    size = 0
    places = np.empty(len(parsed.series), np.int32)
    for number in range(len(parsed.series)):
        metric, own = parse_canonical(parsed.series.canonical(number))
        merged = {**own, **labels}
        if len(merged) > LABELS_MAX:
            raise BadMessage(f"with those of the address a series has {naming.TOO_MANY_TAGS}", got=metric[:80])
        form = canonical(metric, merged)
        size += len(form) if form not in numbers else 0
        if size > MESSAGE_SERIES_BYTES_MAX:  # looked at on the way: a long address times many short lines
            raise LimitExceeded("too many bytes of series names and tags in one body", remedy="Send smaller bodies.")
        places[number] = numbers.setdefault(form, len(numbers))
    return replace(parsed, series=SeriesTable.from_canonical(list(numbers)), series_index=places[parsed.series_index])
