"""Claims about users' regular expressions in matchers and in label_replace: they take linear time or are refused.

The patterns are of the families that make other engines hang: nested and overlapping repetitions, alternations with
common prefixes, counted repetitions of counted repetitions, and checks of e-mail addresses and URLs. Each is tried on
texts that almost match.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from spm.errors import QueryTimeout, SpmError
from spm.query.fake import FakeStorage
from spm.query.promql.engine import Engine
from spm.query.promql.syntax.patterns import cuts_characters, name_groups
from spm.store.matchers import MATCHED_BYTES_AT_ONCE, UNICODE_CLASSES_MAX, Matcher, mask
from spm.store.unicode_classes import count_built

LIMIT_S = 0.1  # of CPU
LARGEST = "(?:.{0,9}){0,99}b"  # 900 states of RE2, tried at each character: two thirds of the limit on an idle core
ATOMS = ("a", "[a-z]", r"\w", ".", "(?:a|aa)", "(?:a|b|ab)", r"(?:\d|[0-9])", "(?i:a)", r"\pL", "é")
SHAPES = (
    "({0}+)+$",
    "({0}*)*$",
    "({0}+)*b",
    "(({0}+)+)+$",
    "({0}|{0})+$",
    "({0}|{0}?)+$",
    "({0}+){{20}}b",
    "({0}{{0,50}}){{0,15}}b",
    "({0}*)({0}*)({0}*)({0}*)({0}*)b",
    "^({0}+)({0}+)({0}+)$b",
    "(.*{0}){{25}}",
    "(.*)*{0}b",
    "(?:{0}+,?)+;",
    "({0}?){{100}}b",
    "{0}{{1,1000}}b",
    "({0}{{1,100}}){{1,100}}",
    "(?:(?:(?:{0}*)*)*)*b",
    "({0}+|b+|c+)*d",
    "(?:x+x+)+{0}",
    "{0}*?{0}*?{0}*?b$",
    "(?:{0}(?:{0}(?:{0})*)*)*b",
    "({0}+.)+b",
    r"({0}+\s?)+b",
    "(^|{0})+b",
    "(?:{0}*b?)*c",
    "({0}|b|c|d|e|f|g)*h",
    ".*{0}.*{0}.*{0}.*{0}.*b",
    "(?:{0}{{3}}){{1,300}}b",
    "(({0}{{1,30}}){{1,30}}){{1,30}}",
    "[^b]*{0}[^b]*{0}[^b]*b",
    "(?s:.)*{0}(?s:.)*b",
    "({0}*){{1000}}",
    "(?:{0}|$)+b",
    "({0}+?)+?b",
    r"(\b{0}+\b\s*)+b",
    "((({0}))+)+b",
    "(?:{0}+)(?:{0}+)(?:{0}+)(?:{0}+)(?:{0}+)(?:{0}+)b",
    "({0}{{2,}}){{2,}}b",
    "(?:{0}?){{30}}{0}{{30}}",
    "(?U:{0}+)+b",
    "(?m:^{0}+$)+b",
    "x*{0}*x*{0}*x*{0}*y",
    "(?:{0}{{0,9}}){{0,99}}b",
    "((?:{0}+)@)+b",
    "({0}+)+({0}+)+({0}+)+b",
    "(?:{0}|(?:{0}|(?:{0})))*b",
)
KNOWN = (
    r"^([a-zA-Z0-9])(([\-.]|[_]+)?([a-zA-Z0-9]+))*(@){1}[a-z0-9]+[.]{1}(([a-z]{2,3})|([a-z]{2,3}[.]{1}[a-z]{2,3}))$",
    r"^(([a-z])+.)+[A-Z]([a-z])+$",
    r"^(\d+|\d+\.)+$",
    r"(?:https?://)?(?:[\w-]+\.?)+(?:/[\w-]*)*\?b$",
    r"(x+x+)+y",
    r"(.*?,){11}P",
    r"<(\w+)(?:\s+\w+=\"[^\"]*\")*\s*/?>b",
    r"\A(?:\S+\s*)+\z!",
    r"(\s*\S+\s*)*=b",
    r"^(?:(?:\"|'|\]|\}|\\|\d|(?:nan|infinity|true|false|null|undefined|symbol|math)|\`|\-|\+)+[)]*;?((?:\s|-|~|!|\{\}|\|\||\+)*.*(?:.*=.*)))",
    r"((((((((((a?)?)?)?)?)?)?)?)?)?){50}b",
    "a{1000}{1000}",
    "(a{1,1000}){1,1000}",
    "(?:" * 1_000 + "a" + ")*" * 1_000,
    "|".join(f"a{{{n}}}" for n in range(1, 300)),
    "[" + "a-z" * 1_000 + "]*b",
    r"\Q" + "(a+)+" * 500,
    "(" * 4_000,
    "[" * 4_000,
    "[:" * 2_000,
    r"\pL" * 500 + "b",
    "(?i:" + "ſ" * 1_000 + ")",
    "(a|b)?" * 600 + "c",
    ".{0,1000}" * 4,
    "(?P<n>a)(?P<n>b)",
    "x" * 4_000,
    "(?:a?){4000}",
    "a**",
    "(?=a)b",
    r"(a)\1",
    r"\C*",
    "(?<=a)b",
    "(?>a+)b",
    "a++b",
)
PATTERNS = (*(shape.format(atom) for shape in SHAPES for atom in ATOMS), *KNOWN)
TEXTS = ("a" * 500 + "!", "ab" * 250, "é" * 250, "a,b; 0." * 70)  # longer than most values of labels


def cpu_seconds(act: Callable[[], object]) -> float:
    """Return the CPU time of this thread until the call returns or raises."""
    start_s = time.thread_time()
    with contextlib.suppress(SpmError):
        act()
    return time.thread_time() - start_s


def slow_patterns(act: Callable[[str], object]) -> dict[str, float]:
    """Return the patterns that exceed the limit three times in a row, with their seconds.

    A time counts only if it is also 1.5 times that of RE2 with the largest pattern: on a core that other processes use
    as well, the same work takes more CPU time.
    """
    slow = {}
    for pattern in PATTERNS:
        for _ in range(3):
            cpu_s = cpu_seconds(lambda p=pattern: act(p))  # type: ignore[misc]
            if cpu_s <= LIMIT_S or cpu_s <= 1.5 * cpu_seconds(_match_largest):
                break
        else:
            slow[pattern[:80]] = round(cpu_s, 3)
    return slow


def _match_largest() -> None:
    pc.match_substring_regex(pa.array(TEXTS), pattern=rf"\A(?s:{LARGEST})\z")


def test_there_are_about_five_hundred_patterns() -> None:
    assert len(set(PATTERNS)) >= 490


@pytest.mark.serial
def test_no_known_bad_pattern_delays_a_matcher() -> None:
    assert slow_patterns(lambda pattern: mask(TEXTS, Matcher("l", "=~", pattern))) == {}


@pytest.mark.parametrize("expr", [r'm{{l=~"{}"}}', r'label_replace(m, "d", "$1", "l", "{}")'])
def test_an_expression_of_more_unicode_classes_than_allowed_is_refused_with_what_to_do(expr: str) -> None:
    storage = FakeStorage()
    storage.add("m", {"l": "é" * 100}, [1_000], np.ones(1))
    engine = Engine(storage)
    assert len(engine.instant(expr.format(r"\\pL" * UNICODE_CLASSES_MAX), 1_000).labels) == 1
    with pytest.raises(SpmError, match=r"holds 101 classes of Unicode .* at most 100 are allowed: use \* or \+"):
        engine.instant(expr.format(r"\\pL" * UNICODE_CLASSES_MAX + r"\\PL?"), 1_000)


@pytest.mark.parametrize(
    ("regex", "classes"),
    [
        ("abc", 0),
        (r"\pL", 1),
        (r"\p{Greek}\PL", 2),
        (r"\\pL", 0),
        (r"\Q\pL\E\pL", 1),
        (r"[\pL\pN_]+", 2),
        (r"\pL{3}", 3),
        (r"\pL{2,5}?", 5),
        (r"\pL{2,}", 2),
        (r"\pL{0}", 1),
        (r"(\pL{0,50}){0,15}b", 750),
        (r"(?:a\pL(?P<n>\pN|\pL{2})){4}b{9}\pL", 17),
        (r"\pL{2}{3}", 6),
        (r"\pL+a{100}", 1),
        (r"\pL){9}", 1),
        (r"(\pL", 1),
        (r"[\pL", 1),
        (r"\pL{x}", 1),
        (r"(\pL*)*", 1),
        (r"\pL" * 50 + "{2}", 51),
    ],
)
def test_classes_of_unicode_are_counted_as_often_as_they_are_built(regex: str, classes: int) -> None:
    assert count_built(regex) == classes


def test_many_long_values_are_matched_in_parts_and_the_deadline_is_checked_between_them() -> None:
    checks: list[int] = []
    values = [f"{'a' * 2_000}{number}" for number in range(200)]
    matches = mask(values, Matcher("l", "=~", "(?:.{0,9}){0,9}b|a+7"), check_deadline=lambda: checks.append(1))
    assert np.flatnonzero(matches).tolist() == [7]
    assert len(checks) == -(-sum(map(len, values)) // MATCHED_BYTES_AT_ONCE)

    def raise_timeout() -> None:
        raise QueryTimeout("over")

    with pytest.raises(QueryTimeout):
        mask(values, Matcher("l", "=~", "(?:.{0,9}){0,99}b"), check_deadline=raise_timeout)


@pytest.mark.serial
def test_no_known_bad_pattern_delays_the_search_for_its_groups() -> None:
    assert slow_patterns(lambda pattern: (cuts_characters(pattern), name_groups(pattern, "group"))) == {}


@pytest.mark.timed
@pytest.mark.parametrize("pattern", ["(a+)+$", "(?:.*,){11}P", "(a{1,100}){1,100}", "[" * 4_000, "a)|(?:b"])
def test_a_query_with_a_known_bad_pattern_is_answered_or_refused_in_time(pattern: str) -> None:
    storage = FakeStorage()
    for number, text in enumerate(TEXTS):
        storage.add("m", {"l": text, "n": str(number)}, [1_000], np.ones(1))
    engine = Engine(storage)
    for expr in (f'm{{l!~"{pattern}"}}', f'label_replace(m, "d", "$1", "l", "{pattern}")'):
        assert cpu_seconds(lambda text=expr: engine.instant(text, 1_000)) < 10 * LIMIT_S  # type: ignore[misc]
