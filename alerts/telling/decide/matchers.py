"""Matchers on the labels of alerts: their text, and which label sets they select.

The text is what stands between the braces of a PromQL selector: ``host="a", env=~"prod|stage"``. An absent label has
the value "". Expressions are matched by RE2, as in queries.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from alerts.telling import limits
from spm.errors import BadQuery
from spm.query.promql.planning.plan import Selector
from spm.query.promql.planning.planner import parse
from spm.store.matchers import Matcher, mask

Matchers = tuple[Matcher, ...]


def read_matchers(text: str) -> Matchers:
    """Parse the matchers; raises ``BadQuery`` if they are none, too many, or would match every label set."""
    if len(text) > limits.MATCHERS_CHARS_MAX:
        raise BadQuery(f"{len(text)} characters of matchers, where at most {limits.MATCHERS_CHARS_MAX} are allowed")
    matchers = parse_matchers(text)
    if len(matchers) > limits.MATCHERS_MAX:
        raise BadQuery(f"{len(matchers)} matchers, where at most {limits.MATCHERS_MAX} are allowed")
    select(matchers, [{}])  # RE2 refuses a wrong expression here, and not when alerts fire
    return matchers


def parse_matchers(text: str) -> Matchers:
    """Parse matchers without a bound of their own; raises ``BadQuery``."""
    tree = parse("{" + text.strip().removeprefix("{").removesuffix("}") + "}")
    if not isinstance(tree, Selector) or tree.offset_ms:
        raise BadQuery('matchers look like host="web-1", env=~"prod|stage"')
    return tree.matchers


def select(matchers: Matchers, label_sets: Sequence[Mapping[str, str]]) -> npt.NDArray[np.bool_]:
    """bool[N]: the label sets that satisfy every matcher; without matchers, all of them."""
    chosen = np.ones(len(label_sets), dtype=np.bool_)
    for matcher in matchers if label_sets else ():
        chosen &= mask([labels.get(matcher.name, "") for labels in label_sets], matcher)
    return chosen
