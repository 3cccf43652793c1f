"""What a start says: progress on standard error, the outcome on standard output.

``welcome`` is for people, ``json_line`` for scripts. A password is shown only as long as it is the one that was made up
at the first start.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

from spm.cli.options import Options

FOR_SCRIPTS = ("url", "login", "password", "app", "token")


def say(line: str) -> None:
    """One line of progress."""
    print(f"· {line}", file=sys.stderr, flush=True)


def json_line(login: Mapping[str, Any]) -> str:
    """The one line of ``--json``: null for what is no longer known."""
    return json.dumps({name: login.get(name) for name in FOR_SCRIPTS})


def welcome(login: Mapping[str, Any], options: Options) -> str:
    """Where to go, how to log in, where the data is, how to stop."""
    rows = [("Open", login["url"]), ("Login", login["login"])]
    if login["password"]:
        rows += [("Password", f"{login['password']}   (change it on your account page)")]
    if login["token"]:
        rows += [("Token", f"{login['token']}   (for sending your own data)")]
    rows += [("Data", str(options.data)), ("Logs", str(options.data / "log")), ("Stop", "Ctrl-C")]
    lines = [f"  {name + ':':<10} {value}" for name, value in rows]
    return "\n".join(["", *lines, ""])
