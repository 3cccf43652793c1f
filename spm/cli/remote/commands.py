"""The commands of ``spm``: query, tail, corrections, rules as code, and lists. ``--json`` prints what programs read.

Each command asks the site, and shows the answer; only what is shown differs. Exit status: 0; 1 from ``rules diff`` when
something would change; 2 for a failure, which is one sentence on standard error. Enter by ``main``.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from spm.cli.remote.charts import Line, draw
from spm.cli.remote.site import CallFailed, Site
from spm.cli.remote.times import read_ms, step_s
from spm.clock import SystemClock

_COLOURS = ("cyan", "yellow", "green", "magenta", "red", "blue")
_CHART_ROWS = 12
_FAILED = 2
_clock = SystemClock()
app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="Query and correct a monitoring site.")
rules = typer.Typer(no_args_is_help=True, help="Rules as code: files of Prometheus or vmalert.")
app.add_typer(rules, name="rules")
Time = Annotated[str, typer.Option(metavar="TIME")]
Files = Annotated[list[Path], typer.Argument(exists=True, dir_okay=False, readable=True)]


@dataclass(frozen=True, slots=True)
class Session:
    """The site that is asked, and how answers are shown."""

    site: Site
    json: bool
    console: Console

    def show(self, answer: Any, people: Callable[[], Any]) -> None:
        """Print the answer as JSON, or what ``people`` returns."""
        if self.json:
            print(json.dumps(answer))
        else:
            self.console.print(people())


@app.callback()
def connect(
    context: typer.Context,
    url: Annotated[str, typer.Option(envvar="SPM_URL", help="the site")] = "http://localhost:8000",
    token: Annotated[str, typer.Option(envvar="SPM_TOKEN", help="a token of an app; better by SPM_TOKEN")] = "",
    number: Annotated[int | None, typer.Option("--app", envvar="SPM_APP", help="the app's number")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Query and correct a monitoring site."""
    context.obj = Session(Site(url, token, number), as_json, Console())


# --- reading ----------------------------------------------------------------------------------------------------------


@app.command()
def query(
    context: typer.Context,
    expression: Annotated[str, typer.Argument(help="PromQL")],
    since: Annotated[str, typer.Option("--from", metavar="TIME", help="1h (ago), ISO 8601 or ms")] = "1h",
    until: Annotated[str, typer.Option("--to", metavar="TIME")] = "now",
    step: Annotated[str, typer.Option(help="seconds, or 30s, 5m; by the width of the chart")] = "",
    instant: Annotated[bool, typer.Option("--instant", help="one value of each series, at --to")] = False,
) -> None:
    """Draw an expression as a chart."""
    session: Session = context.obj
    start, end = _time(since), _time(until)
    if instant:
        answer = session.site.query("query", {"query": expression, "time": end / 1_000})
        session.show(answer, lambda: _values(answer))
        return
    columns = max(session.console.width - 12, 20)
    span = {"start": start / 1_000, "end": end / 1_000, "step": step or step_s(start, end, columns)}
    answer = session.site.query("query_range", {"query": expression, **span})
    session.show(answer, lambda: _chart(answer, session.console.width))


@app.command()
def tail(
    context: typer.Context,
    expression: Annotated[str, typer.Argument(help="PromQL")],
    every: Annotated[float, typer.Option(min=1, help="seconds")] = 5,
    count: Annotated[int, typer.Option(min=0, help="how often; 0: until Ctrl-C")] = 0,
) -> None:
    """Print each new value of an expression, a line each."""
    session: Session = context.obj
    seen: dict[str, Any] = {}
    done = 0
    while True:
        for each in session.site.query("query", {"query": expression})["result"]:
            name = _series(each["metric"])
            if seen.get(name) != each["value"][1]:
                seen[name] = each["value"][1]
                line = {"metric": each["metric"], "time": each["value"][0], "value": each["value"][1]}
                print(json.dumps(line) if session.json else f"{name} {each['value'][1]}", flush=True)
        done += 1
        if done == count:
            return
        _clock.sleep(every)


@app.command()
def apps(context: typer.Context) -> None:
    """List the apps that the token can read."""
    session: Session = context.obj
    listed = session.site.apps()
    session.show(listed, lambda: _table(listed, ["id", "name", "organisation"]))


@app.command()
def agents(context: typer.Context) -> None:
    """List the app's agents, and whether they report."""
    session: Session = context.obj
    listed = session.site.get("agents")
    session.show(listed, lambda: _table(listed, ["name", "state", "why", "version", "platform"]))


@app.command()
def tokens(context: typer.Context) -> None:
    """List the app's tokens, without their secrets."""
    session: Session = context.obj
    listed = session.site.get("tokens")
    session.show(listed, lambda: _table(listed, ["id", "name", "prefix", "scopes", "expires", "last_used"]))


# --- corrections ------------------------------------------------------------------------------------------------------


@app.command()
def retractions(context: typer.Context) -> None:
    """List what was taken out, newest first."""
    session: Session = context.obj
    listed = session.site.get("retractions")
    session.show(listed, lambda: _table(listed, ["number", "state", "source", "series", "reason", "author", "started"]))


@app.command()
def retract(
    context: typer.Context,
    reason: Annotated[str, typer.Option(help="for people who read the chart next year")],
    source: Annotated[str, typer.Option(help="what this sender sent")] = "",
    series: Annotated[str, typer.Option(metavar="SELECTOR", help='cpu_usage{host="a"}')] = "",
    accepted_from: Annotated[str, typer.Option(metavar="TIME", help="accepted since")] = "",
    accepted_to: Annotated[str, typer.Option(metavar="TIME", help="accepted up to")] = "",
    after: Annotated[str, typer.Option(metavar="TIME", help="samples after")] = "",
    up_to: Annotated[str, typer.Option(metavar="TIME", help="samples up to")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would go")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """Take samples out of every answer, after showing how many. Nothing is deleted; undo puts them back."""
    session: Session = context.obj
    times = {"write_from": accepted_from, "write_to": accepted_to, "data_from": after, "data_to": up_to}
    draft: dict[str, str | int] = {name: text for name, text in (("source", source), ("series", series)) if text}
    draft |= {name: _time(text) for name, text in times.items() if text}
    preview = session.site.post("retractions/preview", draft)
    if dry_run:
        session.show(preview, lambda: Text(preview["text"]))
        return
    _confirm(session, f"{preview['text']}. Take them out?", yes=yes)
    retraction = session.site.post("retractions", {**draft, "reason": reason})
    session.show(
        retraction,
        lambda: Text(f"retraction {retraction['number']}: {preview['text']}; undo it: spm undo {retraction['number']}"),
    )


@app.command()
def undo(
    context: typer.Context,
    number: Annotated[int, typer.Argument(help="the retraction's number")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would come back")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """Put back what a retraction hides, after showing what it is."""
    session: Session = context.obj
    chosen = [each for each in session.site.get("retractions") if each["number"] == number]
    if not chosen:
        raise CallFailed(f"There is no retraction {number} in this app. List them: spm retractions.")
    counted = chosen[0]["counted"] or {"samples": "an unknown number of", "series": "?"}
    text = f"retraction {number} ({chosen[0]['reason']}) hid {counted['samples']} samples of {counted['series']} series"
    if dry_run:
        session.show(chosen[0], lambda: Text(text))
        return
    _confirm(session, f"{text}. Put them back?", yes=yes)
    ended = session.site.post(f"retractions/{number}/undo")
    session.show(ended, lambda: Text(f"retraction {number}: {ended['state']}"))


def _confirm(session: Session, question: str, *, yes: bool) -> None:
    """Ask the person at the terminal. Raises ``CallFailed`` where nobody can answer, and when the answer is no."""
    if yes:
        return
    if session.json or not sys.stdin.isatty():
        raise CallFailed(f"{question} Nobody can answer here: look with --dry-run, then say --yes.")
    if not typer.confirm(question):
        raise CallFailed("Nothing was changed.")


# --- rules as code ----------------------------------------------------------------------------------------------------


@rules.command("list")
def list_rules(context: typer.Context) -> None:
    """List the app's rule files."""
    session: Session = context.obj
    names = session.site.get("rules/files")["files"]
    session.show(names, lambda: Text("\n".join(names)))


@rules.command("show")
def show_rules(context: typer.Context, name: str) -> None:
    """Print a rule file of the app as YAML."""
    session: Session = context.obj
    text = session.site.rule_file(name)
    if text is None:
        raise CallFailed(f"There is no rule file {name} in this app. List them: spm rules list.")
    print(json.dumps({"file": name, "text": text}) if session.json else text, end="\n" if session.json else "")


@rules.command("diff")
def diff_rules(context: typer.Context, files: Files, prune: bool = False) -> None:
    """Show what apply would change; status 1 if it is anything."""
    results = _bring_in_step(context.obj, files, prune=prune, dry_run=True)
    if any(each["diff"] for each in results):
        raise typer.Exit(1)


@rules.command("apply")
def apply_rules(context: typer.Context, files: Files, prune: bool = False) -> None:
    """Bring the app's rules in step with files; --prune ends the rules of all other files."""
    _bring_in_step(context.obj, files, prune=prune, dry_run=False)


def _bring_in_step(session: Session, files: Sequence[Path], *, prune: bool, dry_run: bool) -> list[dict[str, Any]]:
    texts = {path.name: path.read_text() for path in files}
    if len(texts) != len(files):
        raise CallFailed("Two of the files have one name; the app knows a rule file by its name.")
    for name, text in texts.items():  # all are judged before the first changes anything
        session.site.put_rule_file(name, text, dry_run=True)
    results = [session.site.put_rule_file(name, text, dry_run=dry_run) for name, text in texts.items()]
    others = [name for name in session.site.get("rules/files")["files"] if name not in texts] if prune else []
    results += [session.site.delete_rule_file(name, dry_run=dry_run) for name in others]
    lines = [
        f"{each['file']}: {each['summary']}\n" + "".join(f"  {line}\n" for line in each["diff"]) for each in results
    ]
    session.show(results, lambda: Text("".join(lines).rstrip("\n")))
    return results


# --- showing ----------------------------------------------------------------------------------------------------------


def _time(text: str) -> int:
    try:
        return read_ms(text, _clock.now_ms())
    except ValueError as error:
        raise CallFailed(str(error)) from error


def _series(metric: Mapping[str, str]) -> str:
    """Return a series as PromQL writes it."""
    labels = ",".join(
        f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in metric.items() if name != "__name__"
    )
    return metric.get("__name__", "") + (f"{{{labels}}}" if labels or "__name__" not in metric else "")


def _chart(answer: Mapping[str, Any], width: int) -> Text:
    series = answer["result"]
    lines = [Line(_series(each["metric"]), [(float(x), float(y)) for x, y in each["values"]]) for each in series]
    text = Text()
    for row in draw(lines, width=width, height=_CHART_ROWS):
        for number, part in row:
            text.append(part, _colour(number))
        text.append("\n")
    for number, line in enumerate(lines):
        text.append("⣿ ", _colour(number)).append(f"{line.name}  last {line.samples[-1][1]:.6g}\n")
    for note in answer["notes"]:
        text.append(f"{note}\n", "dim")
    text.rstrip()
    return text


def _colour(number: int) -> str:
    return "" if number < 0 else _COLOURS[number % len(_COLOURS)]


def _values(answer: Mapping[str, Any]) -> Text:
    result = answer["result"]
    if answer["resultType"] in ("scalar", "string"):
        return Text(str(result[1]))
    return Text("\n".join(f"{_series(each['metric'])} {each['value'][1]}" for each in result) or "no data")


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Table:
    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        cells = [row.get(name) for name in columns]
        table.add_row(*(Text(" ".join(cell) if isinstance(cell, list) else str(cell or "")) for cell in cells))
    return table


def main() -> None:
    """Run the command line."""
    try:
        app()
    except CallFailed as error:
        print(error, file=sys.stderr)
        sys.exit(_FAILED)
