"""The variables of a dashboard: what can be chosen, what is chosen, and what stands in its place."""

import time

import pytest

from frontend.dashboards.document import VariableSpec
from frontend.dashboards.variables import ALL, AUTO, fill, names_in, pick, settle
from spm.errors import BadQuery
from spm.query.promql.planning import plan
from spm.query.promql.planning.planner import parse
from tests.frontend.dashboards.documents import Catalogue, chosen

HOSTS = {"label_values(up, host)": ["a", "b", "c"]}


@pytest.mark.parametrize(
    ("fields", "given", "values"),
    [
        ({}, {}, ["a"]),
        ({"values": ["b"]}, {}, ["b"]),
        ({"values": ["gone"]}, {}, ["a"]),
        ({"all": True}, {}, ["a", "b", "c"]),
        ({"all": True, "values": ["b"]}, {}, ["b"]),
        ({"all": True, "multi": True}, {"host": [ALL]}, ["a", "b", "c"]),
        ({"multi": True}, {"host": ["b", "c"]}, ["b", "c"]),
        ({}, {"host": ["b", "c"]}, ["b"]),
        ({}, {"host": ["new"]}, ["new"]),
        ({}, {"host": [ALL]}, [ALL]),
    ],
    ids=[
        "the first",
        "the one saved",
        "the saved one is gone",
        "all, where it may",
        "the one saved before all",
        "all by the address",
        "several by the address",
        "one of several",
        "one that is not there yet",
        "all is a plain text where it may not be chosen",
    ],
)
def test_a_variable_has_the_value(fields: dict[str, object], given: dict[str, list[str]], values: list[str]) -> None:
    spec = VariableSpec("host", query="label_values(up, host)", **fields)  # type: ignore[arg-type]  # of the table
    (variable,) = settle([spec], given, Catalogue(HOSTS))
    assert list(variable.values) == values


def test_a_variable_may_use_one_that_stands_behind_it() -> None:
    catalogue = Catalogue({**HOSTS, 'label_values(disk{host="a"}, dev)': ["sda"]})
    specs = [
        VariableSpec("dev", query='label_values(disk{host="$host"}, dev)'),
        VariableSpec("host", query="label_values(up, host)"),
    ]
    dev, host = settle(specs, {}, catalogue)
    assert (dev.spec.name, dev.values, host.values) == ("dev", ["sda"], ["a"])


def test_variables_that_use_each_other_have_an_end() -> None:
    specs = [VariableSpec("a", query="metrics($b)"), VariableSpec("b", query="metrics($a)")]
    assert [list(each.options) for each in settle(specs, {}, Catalogue({}))] == [[], []]


def test_a_query_that_fails_is_said_beside_its_variable_only() -> None:
    class Failing:
        def find(self, query: str) -> list[str]:
            raise BadQuery("no such form")

    first, second = settle([VariableSpec("a"), VariableSpec("b", "custom", query="x,y")], {}, Failing())
    assert (first.problem, first.options) == ("no such form", [])
    assert second.values == ["x"]


def test_a_query_that_values_make_too_long_is_not_asked() -> None:
    many = VariableSpec("a", "custom", query=",".join(map(str, range(900))), multi=True, all=True)
    catalogue = Catalogue({})
    (_, variable) = settle([many, VariableSpec("b", query="metrics($a$a)")], {}, catalogue)
    assert (variable.problem, catalogue.queries) == ("with its variables, the query has more than 4,096 signs", [])


def test_values_of_a_list_may_have_names_and_commas() -> None:
    (variable,) = settle([VariableSpec("a", "custom", query=r"one : 1,two\,2")], {}, Catalogue({}))
    assert variable.options == ["1", "two,2"]


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("up{host=~'$host'}", "up{host=~'(web-1|db\\\\.2)'}"),
        ("up{host=~'${host:regex}'}", "up{host=~'(web-1|db\\.2)'}"),
        ("up{host=~'[[host:pipe]]'}", "up{host=~'web-1|db.2'}"),
        ("${host:csv}", "web-1,db.2"),
        ("$other $hosts", "$other $hosts"),
    ],
)
def test_several_values_become_an_expression(text: str, filled: str) -> None:
    assert fill(text, [chosen("host", "web-1", "db.2")], style="promql") == filled


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ('up{host="$host"}', 'up{host="db.2"}'),
        ('up{host!= "${host}"}', 'up{host!= "db.2"}'),
        ('up{host=~"$host"}', 'up{host=~"db\\\\.2"}'),
        ('up{host=~"$host.*"}', 'up{host=~"db\\\\.2.*"}'),
    ],
)
def test_one_of_several_values_is_compared_as_it_is_where_no_expression_is_wanted(text: str, filled: str) -> None:
    assert fill(text, [chosen("host", "db.2", multi=True)], style="promql") == filled


@pytest.mark.parametrize("value", ['a"b', "a\\b", "a\nb", '"} or vector(1) or up{a="', "(.*)"])
@pytest.mark.parametrize("several", [False, True])
def test_a_value_never_leaves_its_quotes(value: str, several: bool) -> None:
    values = (value, "other") if several else (value,)
    expr = fill('up{host=~"$host"}' if several else 'up{host="$host"}', [chosen("host", *values)], style="promql")
    selector = parse(expr)
    assert isinstance(selector, plan.Selector)
    matchers = [each for each in selector.matchers if each.name == "host"]
    assert len(matchers) == 1
    if not several:
        assert matchers[0].value == value


def test_all_is_a_pattern_of_its_own_where_the_dashboard_says_so() -> None:
    every = chosen("host", "a", "b", is_all=True, all_value=".+")
    assert fill('up{host=~"$host"}', [every], style="promql") == 'up{host=~".+"}'
    assert fill("of $host", [every]) == "of All"


def test_the_automatic_interval_is_that_of_the_range() -> None:
    assert fill("rate(x[$i])", [chosen("i", AUTO, kind="interval")], style="promql") == "rate(x[$__interval])"


def test_a_value_in_a_text_is_no_markdown() -> None:
    written = fill("to ${x:raw}", [chosen("x", "[in](https://a.example) <b>", kind="text")], style="markdown")
    assert written == r"to \[in\]\(https\:\/\/a\.example\) \<b\>"


@pytest.mark.parametrize(
    ("texts", "regex", "picked"),
    [
        (["a", "b"], "", ["a", "b"]),
        (["web-1:90", "db:91", "none"], "/([^:]+):.*/", ["web-1", "db"]),
        (["web-1:90", "none"], "([^:]+):(?<value>.*)", ["90"]),
        (['up{host="a"} 1 2'], '/host="(?P<value>[^"]+)/', ["a"]),
        (["web-1", "db-1"], "web", ["web-1"]),
        (["x=1\ny=2"], "y=(.)", ["2"]),
        ([], "(a)", []),
    ],
)
def test_an_expression_picks_a_part_of_each_text(texts: list[str], regex: str, picked: list[str]) -> None:
    assert list(pick(texts, regex)) == picked


@pytest.mark.parametrize("regex", ["(", "/(?!a)b/", "a{3}{2000}", "[z-a]"])
def test_an_expression_that_re2_does_not_know_is_refused(regex: str) -> None:
    with pytest.raises(BadQuery, match="is not valid"):
        pick(["a"], regex)


@pytest.mark.timed
def test_no_expression_takes_longer_than_its_text() -> None:
    began = time.process_time()
    assert list(pick(["a" * 2_000 + "b"] * 100, "(a*)*(a*)*(a*)*c")) == []
    assert time.process_time() - began < 2  # Python's own engine would not end


def test_names_are_found_in_each_way_of_writing() -> None:
    assert names_in("$a ${b} ${c:csv} [[d]] [[e:regex]]") == set("abcde")
