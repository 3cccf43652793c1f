"""Says what a notification holds: its subject, and each of its lines, from the frozen body alone. Pure.

The subject of a mail is the title in chats and webhooks, too; what mail alone says stands in ``email``.

Names and labels come from the tenant's people and machines. ``one_line`` removes characters that end lines or control
terminals and bounds the length, so that no label can write a header or hide the rest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from alerts.durations import spell
from alerts.notify.text import one_line, series, time_text
from spm import limits

WORDS = {
    "error": "ERROR",
    "missing": "NO DATA",
    "firing": "FIRING",
    "repeat": "STILL FIRING",
    "reopened": "FIRING AGAIN",
    "reinstated": "FIRING AFTER ALL",
    "brief": "FIRED BRIEFLY",
    "late": "FIRED EARLIER",
    "resolved": "RESOLVED",
    "retracted": "RETRACTED",
    "test": "TEST",
}
SIGNS = {"resolved": "✔", "retracted": "✘", "brief": "◇", "late": "◇"}  # a shape beside the word, not colour alone
_TITLE_CHARS_MAX = 400  # of a line: 50 of them and a chart are below 100 KB, where mail programs cut
_SUMMARY_CHARS_MAX, _DESCRIPTION_CHARS_MAX = 160, 240
DESCRIBED_LINES_MAX = 10  # lines with what their rule says: the first ones are read, and the others are like them
_SUBJECTS_MAX = 2  # series named in a subject
_ENDS = {
    "no data": "ended: no data for too long",
    "gone": "ended: the series is gone",
    "edited": "ended: the rule was changed",
    "switched off": "ended: the rule was switched off",
    "deleted": "ended: the rule was deleted",
    "person": "ended by a person",
}


@dataclass(frozen=True, slots=True)
class LineText:
    """One line of a notification, ready to be shown."""

    sign: str
    word: str
    severity: str
    app: str
    title: str
    value: str
    condition: str
    time: str
    note: str
    rule: int
    summary: str = ""
    description: str = ""
    runbook: str = ""


def is_over(line: Mapping[str, Any]) -> bool:
    """Whether nothing of this line goes on."""
    return line["kind"] in ("resolved", "retracted", "brief", "late", "test") or line["end_ms"] is not None


def subject(body: Mapping[str, Any]) -> str:
    """Write the subject in one line: what happened how often, the rule, its series, the app."""
    lines = body["lines"]
    total = sum(body["counts"].values())
    head = ", ".join(
        f"{WORDS[kind]}{f' {count}' if total > 1 else ''}"
        for kind, count in sorted(body["counts"].items(), key=lambda pair: list(WORDS).index(pair[0]))
    )
    names = list(dict.fromkeys(line["name"] for line in lines))
    apps = list(dict.fromkeys(line["app_name"] for line in lines))
    places = [place for line in lines if (place := _place(line["labels"]))]
    shown = places[:_SUBJECTS_MAX]
    more = total - len(shown)
    about = ", ".join(shown) + (f" and {more} more" if shown and more > 0 else "")
    if len(lines) == 1 and about and not is_over(lines[0]) and lines[0]["value"]:
        about += f" {_value(lines[0])}{_bound(lines[0])}"
    title = _some(names) + (f": {about}" if about else "")
    return one_line(f"[{head}] {title} · {_some(apps)}", limits.SUBJECT_CHARS_MAX)


def line_text(line: Mapping[str, Any]) -> LineText:
    """Write one line of the notification."""
    texts: Mapping[str, str] = line.get("annotations", {})
    about = series({name: text for name, text in line["labels"].items() if name != "__name__"})
    duration = f" for {spell(line['for_ms'])}" if line["for_ms"] else ""
    condition = f"{line['comparator']} {_number(line['threshold'])}{duration}" if line["comparator"] else line["expr"]
    return LineText(
        sign=SIGNS.get(line["kind"], "▲"),
        word=WORDS[line["word"]],
        severity=line["severity"],
        app=one_line(line["app_name"]),
        title=one_line(line["name"] + (f": {about}" if about else ""), _TITLE_CHARS_MAX),
        value=_value(line),
        condition=one_line(condition),
        time=_time(line),
        note=_note(line),
        rule=line["rule"],
        summary=one_line(texts.get("summary", ""), _SUMMARY_CHARS_MAX),
        description=one_line(texts.get("description", ""), _DESCRIPTION_CHARS_MAX),
        runbook=_web_address(texts.get("runbook_url", "")),
    )


def line_texts(lines: Sequence[Mapping[str, Any]]) -> list[LineText]:
    """Write the lines; beyond the first ones without what is written at length."""
    texts = [line_text(line) for line in lines]
    return texts[:DESCRIBED_LINES_MAX] + [_shortened(text) for text in texts[DESCRIBED_LINES_MAX:]]


def _shortened(text: LineText) -> LineText:
    title = one_line(text.title, _TITLE_CHARS_MAX // 3)
    return replace(text, title=title, summary="", description="", runbook="")


def plain_text(
    body: Mapping[str, Any], links: Mapping[int, str], home: str, acts: Mapping[str, str] | None = None
) -> str:
    """Write the whole notification as text.

    ``links`` are the addresses of its rules, ``home`` that of all alerts, ``acts`` what can be done.
    """
    parts = []
    for each in line_texts(body["lines"]):
        facts = [part for part in (each.value, each.condition, each.time) if part]
        parts += [f"{each.sign} {each.word} · {each.severity} · {each.app}", each.title, "   ".join(facts)]
        parts += [part for part in (each.summary, each.description, each.note) if part]
        parts += [f"Runbook: {each.runbook}", ""] if each.runbook else [""]
    if body["more"]:
        parts += [f"and {more_text(body)}: {home}", ""]
    parts += [f"{text}: {link}" for text, link in (acts or {}).items()]
    parts += ["Rules:", *(f"  {link}" for link in links.values())]
    return "\n".join(parts) + "\n"


def chart_text(line: Mapping[str, Any]) -> str:
    """Say what the chart of a line shows, for people who do not see it."""
    text = line_text(line)
    return one_line(" ".join(filter(None, (f"Chart of {text.title}:", text.value, text.condition, text.time))))


def more_text(body: Mapping[str, Any]) -> str:
    """Say what is not shown line by line: ``990 more firing``; an empty text if nothing is left out."""
    more = ", ".join(f"{count:,} more {WORDS[kind].lower()}" for kind, count in body["more"].items())
    groups = len(body["groups"]) + body.get("groups_more", 0)
    return f"{more}, in {groups:,} groups together" if more and groups > 1 else more


def _place(labels: Mapping[str, str]) -> str:
    """Name a series in a few words: its host or instance, else its labels."""
    known = next((labels[name] for name in ("host", "hostname", "instance", "service", "job") if labels.get(name)), "")
    return known or series({name: text for name, text in labels.items() if name != "__name__"})


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _time(line: Mapping[str, Any]) -> str:
    since = f"since {time_text(line['start_ms'])}"
    return since if line["end_ms"] is None else f"{since} until {time_text(line['end_ms'])}"


def _note(line: Mapping[str, Any]) -> str:
    notes = ["You may have been told of this before: nobody knows whether that arrived."] if line["perhaps"] else []
    if line["word"] == "error":
        notes.append("The rule cannot be judged. Its page says why.")
    if line["kind"] == "retracted":
        notes.append("By what is known now, this alert never was.")
    elif line["end_reason"] in _ENDS:
        notes.append(_ENDS[line["end_reason"]].capitalize() + ".")
    return " ".join(notes)


def _web_address(text: str) -> str:
    """Return an address that a mail may link to; a text that is no web address is none."""
    is_safe = text.startswith(("https://", "http://")) and text.isprintable() and not set(text) & set(' "<>')
    return text if is_safe and len(text) <= limits.MAIL_LINE_CHARS_MAX else ""


def _bound(line: Mapping[str, Any]) -> str:
    return f" ({line['comparator']} {_number(line['threshold'])})" if line["comparator"] else ""


def _value(line: Mapping[str, Any]) -> str:
    return _number(line["value"])


def _number(text: str) -> str:
    return f"{float(text):.6g}" if text else ""
