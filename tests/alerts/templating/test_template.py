"""Templates of rules: what they write, what they refuse, and that none can take long or break a notification."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.templating.functions import text_of
from alerts.templating.template import TEMPLATE_CHARS_MAX, TEXT_CHARS_MAX, AlertFacts, check, render
from spm.errors import BadQuery

FACTS = AlertFacts({"host": "web-1", "path": "/a b", "instance": "web-1.example.org:9100"}, 1234567.0)

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
}


@pytest.mark.parametrize(("text", "expected"), WRITTEN.items(), ids=WRITTEN)
def test_a_template_writes_what_prometheus_writes(text: str, expected: str) -> None:
    check(text)
    assert render(text, FACTS) == expected


REFUSED = {
    "{{ query `up` }}": "no queries",
    "{{ range $labels }}{{ end }}": "no loops",
    "{{ template `x` }}": "no definitions",
    "{{ $labels.a.b }}": "has no field b",
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


@pytest.mark.parametrize("text", ["{{ humanize $labels.host }}", '{{ match "(" "a" }}', "{{ . }}", "{{ lt `a` 1.0 }}"])
def test_a_template_that_fails_says_so_in_its_text(text: str) -> None:
    assert render(text, FACTS).startswith("<error expanding template: ")


@given(st.text(alphabet='{}$"`|()-. abLv/*\\', max_size=60))
def test_any_text_is_rendered_or_refused(text: str) -> None:
    assert isinstance(render(text, FACTS), str)


def test_a_text_has_an_end_whatever_its_template_asks_for() -> None:
    assert len(render("{{ printf `%999d` 1 }}" * 170, FACTS)) <= TEXT_CHARS_MAX


GO = [(0.0, "0"), (-0.0, "-0"), (999999.0, "999999"), (1e6, "1e+06"), (1e-4, "0.0001"), (1e-5, "1e-05")]


@pytest.mark.parametrize(("value", "expected"), [*GO, (float("inf"), "+Inf"), (float("nan"), "NaN")])
def test_numbers_print_as_go_prints_them(value: float, expected: str) -> None:
    assert text_of(value) == expected
