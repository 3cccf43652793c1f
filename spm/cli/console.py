"""The output of a start: progress on standard error, the result on standard output.

Enter by ``say`` for progress, by ``welcome`` (for people) and ``json_line`` (for scripts) for the result. A password is
shown only as long as it is the one that was generated at the first start.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

from spm.cli.options import Options

FOR_SCRIPTS = ("url", "login", "password", "app", "token")


def say(line: str) -> None:
    """Print one line of progress."""
    print(f"· {line}", file=sys.stderr, flush=True)


def json_line(login: Mapping[str, Any]) -> str:
    """The line for ``--json``, with null for values that are not known any more."""
    return json.dumps({name: login.get(name) for name in FOR_SCRIPTS})


def welcome(login: Mapping[str, Any], options: Options) -> str:
    """The text for people: the address, the login, the folders, how to stop."""
    rows = [("Open", login["url"]), ("Login", login["login"])]
    if login["password"]:
        rows += [("Password", f"{login['password']}   (change it on your account page)")]
    if login["token"]:
        rows += [("Token", f"{login['token']}   (for sending your own data)")]
    if not options.spark:
        rows.append(("Runs", "in one process of this machine, without Spark"))
    rows += [("Data", str(options.data)), ("Logs", str(options.data / "log")), ("Stop", "Ctrl-C")]
    lines = [f"  {name + ':':<10} {value}" for name, value in rows]
    return "\n".join(["", *lines, ""])
