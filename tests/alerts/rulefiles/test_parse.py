"""Rule files as text: what is taken, what is refused and where the error points, and how expressions are split."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.rulefiles.content import AlertContent, BadRuleFile
from alerts.rulefiles.limits import FILE_BYTES_MAX
from alerts.rulefiles.parse import parse
from alerts.rulefiles.threshold_split import SplitExpression, join, split


def rule(text: str) -> str:
    """A file with one rule."""
    return f"groups:\n  - name: g\n    rules:\n      - {text}\n"


REFUSALS = {
    "a rule of both kinds": (rule("{alert: A, record: b, expr: up}"), 'line 4, group "g": a rule has either'),
    "a rule of no kind": (rule("{expr: up}"), "got none of them"),
    "an expression that does not parse": (rule("{alert: A, expr: 'sum('}"), 'line 4, group "g", rule "A": expr: '),
    "an expression that looks ahead": (rule("{alert: A, expr: 'x offset -5m'}"), "negative offset"),
    "no expression": (rule("{alert: A}"), "a rule needs an expr"),
    "an unknown field of a rule": (rule("{alert: A, expr: up, fro: 5m}"), 'rule "A": unknown field "fro"'),
    "an unknown field of a group": ("groups:\n - name: g\n   intervall: 5m", 'line 3, group "g": unknown field'),
    "an unknown field of the file": ("groups: []\nrules: []", 'f.yml, line 2: unknown field "rules"'),
    "a field twice": (rule("{alert: A, expr: up, expr: down}"), '"expr" stands twice'),
    "a group twice": ("groups: [{name: g}, {name: g}]", 'group name "g" stands twice'),
    "a group without name": ("groups: [{rules: []}]", "a group needs a name"),
    "a duration without unit": (rule("{alert: A, expr: up, for: 5}"), "for needs a unit; got 5"),
    "a duration that is none": (rule("{alert: A, expr: up, for: soon}"), 'rule "A": for: '),
    "a duration that is too long": (rule("{alert: A, expr: up, for: 8d}"), "for is out of bounds"),
    "a template that is not closed": (rule("{alert: A, expr: up, annotations: {a: '{{ $value'}}"), "annotations: a: "),
    "a template that queries": (rule("{alert: A, expr: up, labels: {a: '{{ query `up` }}'}}"), "a label cannot query"),
    "a label that no series has": (rule("{alert: A, expr: up, labels: {a-b: c}}"), "not a label"),
    "the label of the name": (rule("{alert: A, expr: up, labels: {alertname: c}}"), "not a label"),
    "a recording rule with for": (rule("{record: a, expr: up, for: 5m}"), "a recording rule has no for"),
    "a recording rule without metric": (rule("{record: 'a b', expr: up}"), "not the name of a metric"),
    "a list in place of a text": (rule("{alert: A, expr: [up]}"), "expr must be a text; got a list"),
    "a mapping in place of a list": ("groups: {name: g}", "groups must be a list; got a mapping"),
    "a text in place of all": ("up", "the file must be a mapping"),
    "another engine's group": ("groups: [{name: g, type: graphite}]", "groups of this type cannot be judged here"),
    "filters of another engine": ("groups: [{name: g, params: {a: [b]}}]", 'unknown field "params"'),
    "text that is no YAML": ("groups: [", "line 2: not YAML"),
    "two documents": ("groups: []\n---\ngroups: []", "not YAML"),
    "an alias": ("groups: [{name: &a g}, {name: *a}]", "an alias of YAML is not accepted"),
    "a file that is too large": ("#" + "x" * FILE_BYTES_MAX, "the file is too large"),
    "too many levels": ("groups: " + "[" * 100 + "]" * 100, "nested too deeply"),
    "too many parts": ("groups: [" + "1," * 100_000 + "]", "too many parts"),
    "a control character": ("groups: \x00", "not YAML"),
}


@pytest.mark.parametrize(("text", "message"), REFUSALS.values(), ids=REFUSALS)
def test_a_mistake_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(BadRuleFile) as refusal:
        parse(text, "f.yml")
    assert message in str(refusal.value)
    assert str(refusal.value).startswith("f.yml, line ")


def test_a_tag_makes_no_object_of_a_text() -> None:
    file = parse(rule("{alert: !!python/object/apply:os.system A, expr: up}"), "f.yml")
    assert file.groups[0].rules[0].name == "A"


def test_texts_stay_texts_whatever_yaml_would_make_of_them() -> None:
    file = parse(rule("{alert: yes, expr: 1, labels: {on: 012, b: 1e3, c: 2020-01-01, d: ~}}"), "f.yml")
    content = file.groups[0].rules[0]
    assert (content.name, content.expr) == ("yes", "1")
    assert content.labels == {"on": "012", "b": "1e3", "c": "2020-01-01", "d": ""}


def test_fields_of_vmalert_without_effect_become_notes() -> None:
    text = "groups: [{name: g, concurrency: 2, eval_offset: 5s, rules: [{record: a, expr: b, debug: true}]}]"
    notes = parse(text, "f.yml").notes
    assert [note.split()[0] for note in notes] == ['"concurrency"', '"eval_offset"', '"debug"']


@pytest.mark.parametrize("text", ["", "groups:", "groups: []", "# nothing\n"])
def test_an_empty_file_has_no_groups(text: str) -> None:
    assert parse(text, "f.yml").groups == ()


def test_a_rule_has_all_that_its_file_says() -> None:
    text = rule("{alert: A, expr: up == 0, for: 1h30m, keep_firing_for: 90s, labels: {a: b}, annotations: {c: d}}")
    [content] = parse(text, "f.yml").groups[0].rules
    assert content == AlertContent("A", "up == 0", 5_400_000, 90_000, {"a": "b"}, {"c": "d"}, 4)


SPLITS = {
    "cpu > 90": SplitExpression("cpu", ">", 90.0),
    "90 <= cpu": SplitExpression("cpu", ">=", 90.0),
    "cpu == -1.5e3": SplitExpression("cpu", "==", -1500.0),
    "cpu < (Inf)": SplitExpression("cpu < (Inf)"),
    "a + b > 2": SplitExpression("a + b", ">", 2.0),
    "(a or b) > 2": SplitExpression("(a or b)", ">", 2.0),
    "a > 5 > 3": SplitExpression("a > 5", ">", 3.0),
    "a # one > 2\n > 3": SplitExpression("a # one > 2", ">", 3.0),
    "cpu != 0": SplitExpression("cpu != 0"),
    "cpu > bool 90": SplitExpression("cpu > bool 90"),
    "a > b": SplitExpression("a > b"),
    "a > 5 and b < 3": SplitExpression("a > 5 and b < 3"),
    "absent(up)": SplitExpression("absent(up)"),
    "a > 60 * 5": SplitExpression("a > 60 * 5"),
    "(a > 5)": SplitExpression("(a > 5)"),
}


@pytest.mark.parametrize(("text", "expected"), SPLITS.items(), ids=SPLITS)
def test_a_comparison_with_a_number_is_split(text: str, expected: SplitExpression) -> None:
    assert split(text) == expected


@pytest.mark.parametrize("text", SPLITS)
def test_what_was_split_joins_to_what_splits_alike(text: str) -> None:
    parts = split(text)
    assert split(join(parts.expr, parts.comparator, parts.threshold)) == parts


@given(
    st.sampled_from(["a", "a or b", "a unless b", "a > 5", "a # c", "-a", "a and b # c", "sum(a) by (x)"]),
    st.sampled_from([">", ">=", "<", "<=", "=="]),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_joined_expressions_mean_a_comparison_of_the_whole(expr: str, comparator: str, threshold: float) -> None:
    parts = split(join(expr, comparator, threshold))
    assert (parts.comparator, parts.threshold) == (comparator, threshold)
    assert parts.expr in (expr, f"({expr})", f"({expr}\n)")
