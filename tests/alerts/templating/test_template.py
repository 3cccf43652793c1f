"""Templates of rules: what they write, what they refuse, and that none can take long or break a notification."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.templating.functions import AlertFacts, Sample, text_of
from alerts.templating.limits import TEMPLATE_CHARS_MAX, TEXT_CHARS_MAX
from alerts.templating.template import check, render
from spm.errors import BadQuery

ANSWER = [Sample({"id": "2", "host": "b", "__value__": "text b"}, 20.5), Sample({"id": "1", "host": "a"}, 10.0)]


def answer(expr: str) -> list[Sample]:
    """The answers of the queries of these tests."""
    if expr == "broken(":
        raise BadQuery("unexpected end")
    return ANSWER if expr == "up" else []


FACTS = AlertFacts({"host": "web-1", "path": "/a b", "instance": "web-1.example.org:9100"}, 1234567.0, query=answer)

WRITTEN = {
    "plain {}": "plain {}",
    "{{ $labels.host }} {{$value}}": "web-1 1.234567e+06",
    "{{ .Labels.host }}|{{ .Value }}|{{ $labels.none }}|": "web-1|1.234567e+06||",
    "{{ $value | humanize }} {{ humanize1024 2048.0 }}": "1.235M 2ki",
    "{{ 0.00005 | humanize }} {{ 0.0 | humanize }} {{ 12.0 | humanize }}": "50u 0 12",
    "{{ 90061.0 | humanizeDuration }} {{ 61.5 | humanizeDuration }}": "1d 1h 1m 1s 1m 1s",
    "{{ 0.5 | humanizeDuration }} {{ 5.1234567 | humanizeDuration }}": "500ms 5.123s",
    "{{ 0.0 | humanizeDuration }} {{ -3700.0 | humanizeDuration }}": "0s -1h 1m 40s",
    "{{ 0.123456 | humanizePercentage }}": "12.35%",
    "{{ 1700000000.5 | humanizeTimestamp }}": "2023-11-14 22:13:20.5 +0000 UTC",
    '{{ printf "%.2f|%5.1f|%s|%v|%d|%q|%%" 1.005 2.25 "a" 3.0 7 "q" }}': '1.00|  2.2|a|3|7|"q"|%',
    '{{ printf "%e %05.1f %-4d|" 12345.678 2.25 7 }}': "1.234568e+04 002.2 7   |",
    '{{ printf "%s" }}{{ printf "a" 1 }}': "%!s(MISSING)a%!(EXTRA 1)",
    "{{ $labels.host | toUpper | printf `<%s>` }}": "<WEB-1>",
    '{{ "ab cd" | title }} {{ stripPort $labels.instance }}': "Ab Cd web-1.example.org",
    "{{ stripDomain $labels.instance }} {{ stripDomain `10.0.0.1:80` }}": "web-1:9100 10.0.0.1:80",
    '{{ reReplaceAll "(.*)-(.*)" "$2-${1}x" $labels.host }}': "1-webx",
    '{{ if eq $labels.host "web-1" }}a{{ else }}b{{ end }}': "a",
    '{{ if gt $value 2e6 }}a{{ else if match "^web" $labels.host }}b{{ else }}c{{ end }}': "b",
    "{{ with $labels.none }}[{{ . }}]{{ else }}none{{ end }}{{ with $labels.host }}[{{ . }}]{{ end }}": "none[web-1]",
    "a  {{- $labels.host -}}  b": "aweb-1b",
    "a{{/* said to nobody */}}b": "ab",
    '{{ index $labels "path" }} {{ urlquery $labels.path }} {{ html "<b>" }}': "/a b %2Fa+b &lt;b&gt;",
    "{{ if and $labels.host (not $labels.none) }}y{{ end }}": "y",
    '{{ "}}" }}': "}}",
    "{{ parseDuration `1h30m` }}": "5400",
    "{{ stripPort `[::1]:6006` }} {{ stripPort `::1` }} {{ stripPort `a` }} {{ stripPort `[::1]` }}": "::1 ::1 a [::1]",
    "{{ range query `up` }}{{ .Labels.host }}={{ .Value }};{{ end }}": "b=20.5;a=10;",
    "{{ range query `none` }}x{{ else }}nobody{{ end }}": "nobody",
    "{{ range $i, $s := sortByLabel `id` (query `up`) }}{{ $i }}:{{ $s | value }} {{ end }}": "0:10 1:20.5 ",
    "{{ query `up` | sortByLabel `id` | first | label `host` }} {{ query `up` | first | strvalue }}": "a text b",
    "{{ with query `up` }}{{ len . }} {{ . | first | value | humanize }}{{ end }}": "2 20.5",
    "{{ with query `none` }}x{{ else }}no answer{{ end }}": "no answer",
    "{{ range $name, $text := $labels }}{{ $name }}={{ $text }},{{ end }}": (
        "host=web-1,instance=web-1.example.org:9100,path=/a b,"
    ),
    "{{ define `t` }}<{{ .arg0 }} {{ .arg1 }}{{ .arg2 }}>{{ end }}{{ template `t` (args `a` 2) }}": "<a 2<no value>>",
    "{{ template `t` .Labels }}{{ define `t` }}{{ .host }}{{ end }}": "web-1",
    "{{ define `t` }}{{ .Labels.host }} {{ .Value }}{{ end }}{{ template `t` . }}": "web-1 1.234567e+06",
    "{{ block `t` $labels.host }}[{{ . }}]{{ end }}": "[web-1]",
    "{{ $x := 1 }}{{ range query `up` }}{{ $x = .Value }}{{ end }}{{ $x }}": "10",
    "{{ $x := 1 }}{{ if true }}{{ $x := 2 }}{{ $x }}{{ end }}{{ $x }}": "21",
    "{{ range query `up` }}{{ if eq .Labels.host `a` }}{{ break }}{{ end }}{{ .Value }}{{ end }}": "20.5",
    "{{ range query `up` }}{{ if eq .Labels.host `b` }}{{ continue }}{{ end }}{{ .Value }}{{ end }}": "10",
    "{{ if $x := $labels.host }}{{ $x }}{{ end }}{{ with $y := `z` }}{{ $y }}{{ . }}{{ end }}": "web-1zz",
    "{{ range $labels }}{{ $.Value }} {{ end }}": "1.234567e+06 1.234567e+06 1.234567e+06 ",
    "{{ len `abc` }} {{ len $labels }} {{ len (query `up`) }}": "3 3 2",
    "{{ graphLink `up > 1` }} {{ tableLink `up` }}": "/graph?g0.expr=up+%3E+1&g0.tab=0 /graph?g0.expr=up&g0.tab=1",
    "{{ tmpl `x` . }}{{ pathPrefix }}{{ externalURL }}{{ $externalURL }}|": "|",
    "{{ index (query `up`) 1 | value }}": "10",
}


@pytest.mark.parametrize(("text", "expected"), WRITTEN.items(), ids=WRITTEN)
def test_a_template_writes_what_prometheus_writes(text: str, expected: str) -> None:
    check(text)
    assert render(text, FACTS) == expected


REFUSED = {
    "{{ $labels.a.b }}": "has no field b",
    "{{ range $labels }}": "{{ range … }} has no {{ end }}",
    "{{ template `x` }}": "there is no definition of the template 'x'",
    "{{ if true }}{{ define `x` }}{{ end }}{{ end }}": "at the top of a template only",
    "{{ define x }}{{ end }}": "needs a name in quotes",
    "{{ with $a, $b := $labels }}{{ end }}": "only {{ range … }} declares two variables",
    "{{ $a = 1 }}": "there is no variable $a to set",
    "{{ if true }}{{ $a := 1 }}{{ end }}{{ $a }}": "there is no variable $a",
    "{{ break }}": "stands outside of a loop",
    "{{ query }}": "query takes 1 arguments, not 0",
    "{{ $hostname }}": "there is no variable $hostname",
    "{{ .Hostname }}": "there is no field .Hostname",
    "{{ shout $value }}": "there is no function shout",
    "{{ humanize }}": "humanize takes 1 arguments, not 0",
    "{{ if $value }}": "has no {{ end }}",
    "{{ end }}": "there is nothing that it ends",
    "{{ $value": "an action is not closed",
    "{{ ($value }}": "a bracket is not closed",
    "{{ $value | 5 }}": "is not a function",
    "{{ 'a' }}": "unexpected",
    "x" * (TEMPLATE_CHARS_MAX + 1): "at most 4000 characters",
    "{{ if 1 }}" * 30 + "{{ end }}" * 30: "nested at most 20 deep",
}


@pytest.mark.parametrize(("text", "message"), REFUSED.items(), ids=[text[:30] for text in REFUSED])
def test_what_a_template_cannot_do_is_refused_before_it_is_saved(text: str, message: str) -> None:
    with pytest.raises(BadQuery) as refusal:
        check(text)
    assert message in str(refusal.value)


FAILING = [
    "{{ humanize $labels.host }}",
    '{{ match "(" "a" }}',
    "{{ . }}",
    "{{ lt `a` 1.0 }}",
    "{{ query `broken(` }}",
    "{{ query `none` | first }}",
    "{{ range `text` }}{{ end }}",
    "{{ 1 | value }}",
    "{{ define `t` }}{{ template `t` }}{{ end }}{{ template `t` }}",
    "{{ range 6000 }}{{ end }}",
    "{{ range 11 }}{{ $x := query `up` }}{{ end }}",
]


@pytest.mark.parametrize("text", FAILING)
def test_a_template_that_fails_says_so_in_its_text(text: str) -> None:
    assert render(text, FACTS).startswith("<error expanding template: ")


@given(st.text(alphabet='{}$"`|()-. abLv/*\\', max_size=60))
def test_any_text_is_rendered_or_refused(text: str) -> None:
    assert isinstance(render(text, FACTS), str)


def test_a_text_has_an_end_whatever_its_template_asks_for() -> None:
    assert len(render("{{ printf `%999d` 1 }}" * 170, FACTS)) <= TEXT_CHARS_MAX


def test_loops_within_loops_end(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "{{ range 70 }}" * 15 + "x" + "{{ end }}" * 15
    assert len(render(text, FACTS)) <= TEXT_CHARS_MAX
    assert "5000 steps" in render(text.replace("x", ""), FACTS)


def test_a_text_is_cut_at_its_bound_in_a_loop_too() -> None:
    assert render("{{ range 4000 }}abcde{{ end }}", FACTS) == ("abcde" * 4_000)[:TEXT_CHARS_MAX]


def test_without_anything_to_query_the_text_says_so() -> None:
    assert render("{{ query `up` }}", AlertFacts({}, 1.0)) == (
        "<error expanding template: there is nothing to query here>"
    )


def test_what_a_label_is_cannot_depend_on_a_query() -> None:
    check("{{ query `up` | first | value }}")
    with pytest.raises(BadQuery, match="a label cannot query"):
        check("{{ define `t` }}{{ query `up` | first | value }}{{ end }}", may_query=False)


GO = [(0.0, "0"), (-0.0, "-0"), (999999.0, "999999"), (1e6, "1e+06"), (1e-4, "0.0001"), (1e-5, "1e-05")]


@pytest.mark.parametrize(("value", "expected"), [*GO, (float("inf"), "+Inf"), (float("nan"), "NaN")])
def test_numbers_print_as_go_prints_them(value: float, expected: str) -> None:
    assert text_of(value) == expected
