"""The signatures of all functions: the types of their arguments.

A signature has a word per argument: `vector`, `range`, `scalar`, `string` or `selector`; with `?` the argument is
optional, with `*` it may be repeated (up to nine times for scalars). Functions of native histograms, and those that
need the start time of a counter, are listed so that they can be refused by name: samples are floats here.
"""

from __future__ import annotations

from dataclasses import dataclass

_ELEMENTWISE = (
    "abs ceil floor sqrt exp ln log2 log10 sgn deg rad sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh"
)
CALENDAR = frozenset(["minute", "hour", "day_of_week", "day_of_month", "day_of_year", "days_in_month", "month", "year"])
_RANGES = (
    "rate increase delta irate idelta changes resets deriv "
    "count_over_time present_over_time last_over_time first_over_time sum_over_time avg_over_time min_over_time "
    "max_over_time stddev_over_time stdvar_over_time mad_over_time "
    "ts_of_first_over_time ts_of_last_over_time ts_of_min_over_time ts_of_max_over_time"
)
NATIVE = frozenset(["histogram_avg", "histogram_count", "histogram_sum", "histogram_stddev", "histogram_stdvar"])


@dataclass(frozen=True, slots=True)
class Signature:
    """The kinds of a function's arguments, in order."""

    kinds: tuple[str, ...]
    least: int
    most: int

    def kind(self, number: int) -> str:
        """Return the kind of the argument with this number; the last kind holds for all further arguments."""
        return self.kinds[min(number, len(self.kinds) - 1)]


def _signature(words: str) -> Signature:
    parts = words.split()
    kinds = tuple(part.rstrip("?*") for part in parts)
    least = sum(not part.endswith(("?", "*")) for part in parts)
    many = bool(parts) and parts[-1].endswith("*")
    most = len(parts) + (8 if kinds[-1] == "scalar" else 1_000) if many else len(parts)
    return Signature(kinds, least, most)


SIGNATURES = {
    name: _signature(words)
    for names, words in (
        (_ELEMENTWISE, "vector"),
        ("timestamp absent sort sort_desc start_timestamp", "vector"),
        (" ".join(NATIVE), "vector"),
        (" ".join(CALENDAR), "vector?"),
        (_RANGES, "range"),
        ("absent_over_time", "range"),
        ("predict_linear", "range scalar"),
        ("integral", "range scalar?"),
        ("double_exponential_smoothing holt_winters", "range scalar scalar"),
        ("quantile_over_time sketch_quantile_over_time", "scalar range"),
        ("round", "vector scalar?"),
        ("clamp", "vector scalar scalar"),
        ("clamp_min clamp_max", "vector scalar"),
        ("sort_by_label sort_by_label_desc", "vector string*"),
        ("label_replace", "vector string string string string"),
        ("label_join", "vector string string string*"),
        ("histogram_quantile", "scalar vector"),
        ("histogram_quantiles", "vector string scalar scalar*"),
        ("histogram_fraction", "scalar scalar vector"),
        ("info", "vector selector?"),
        ("time pi start end step range", ""),
        ("min_of max_of", "scalar scalar"),
        ("scalar", "vector"),
        ("vector", "scalar"),
    )
    for name in names.split()
}
CONTEXT = frozenset({"start", "end", "step", "range"})  # scalars that depend on the query as a whole
