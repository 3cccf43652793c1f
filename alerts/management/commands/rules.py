"""``manage.py rules import|export|test``: rule files of Prometheus and vmalert.

manage.py rules import node.yml app.yml --app 7 --dry-run
manage.py rules export --app 7 node.yml
manage.py rules test node_test.yml
"""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from alerts.rulefiles.apply import Author, file_names, import_files
from alerts.rulefiles.export import export_file
from alerts.rulefiles.parse import parse
from alerts.rulefiles.unit_tests.content import parse_tests
from alerts.rulefiles.unit_tests.run import failures_of
from spm.accounts.access import only_app, require_app_number
from spm.clock import SystemClock
from spm.errors import Refused, SpmError

_BY = Author(name="command line")


def _failures_of_file(path: Path) -> list[str]:
    """Run the tests of a file on the rule files that it names, which lie beside it."""
    tests = parse_tests(path.read_text(), path.name)
    files = [each for pattern in tests.rule_files for each in sorted(path.parent.glob(pattern))]
    return failures_of(tests, [parse(each.read_text(), each.name) for each in files])


class Command(BaseCommand):
    """The command ``rules``."""

    help = "Import, export and test rule files of Prometheus and vmalert."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the command's options."""
        actions = parser.add_subparsers(dest="action", required=True)
        importing = actions.add_parser("import", help="bring an app's rules in step with rule files")
        importing.add_argument("files", nargs="+", type=Path)
        importing.add_argument("--dry-run", action="store_true", help="only show what would change")
        importing.add_argument("--prune", action="store_true", help="delete the rules of all other rule files")
        exporting = actions.add_parser("export", help="write rules as a rule file")
        exporting.add_argument("file", nargs="?", help="the file's name; without it, the names are listed")
        testing = actions.add_parser("test", help="run Prometheus' unit tests of rules, on this product's engine")
        testing.add_argument("files", nargs="+", type=Path)
        for each in (importing, exporting):
            each.add_argument("--app", type=int, help="the app's number; needed if there are several")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do one of the actions."""
        try:
            getattr(self, f"_{options['action']}")(**options)
        except (SpmError, OSError, UnicodeDecodeError) as error:
            raise CommandError(str(error)) from error

    def _import(self, *, files: list[Path], app: int | None, dry_run: bool, prune: bool, **_: Any) -> None:
        texts = {path.name: path.read_text() for path in files}
        now_ms = SystemClock().now_ms()
        target = only_app() if app is None else require_app_number(app)
        for each in import_files(target, texts, by=_BY, now_ms=now_ms, dry_run=dry_run, prune=prune):
            self.stdout.write("\n".join(each.lines()))
        if dry_run:
            self.stdout.write("nothing was changed")

    def _export(self, *, file: str | None, app: int | None, **_: Any) -> None:
        target = only_app() if app is None else require_app_number(app)
        text = "\n".join(file_names(target)) if file is None else export_file(target, file)
        if text is None:
            raise Refused(f"there is no rule file {file!r} in this app")
        self.stdout.write(text)

    def _test(self, *, files: list[Path], **_: Any) -> None:
        failures = [text for path in files for text in _failures_of_file(path)]
        if failures:
            raise CommandError("\n".join(["FAILED", *failures]))
        self.stdout.write("SUCCESS")
