"""The output of a start: progress on standard error, the result on standard output.

Enter by ``say`` for progress, by ``welcome`` (for people) and ``json_line`` (for scripts) for the result. A password is
shown only as long as it is the one that was generated at the first start, and only at a terminal or to a script that
asks: whatever else reads the output, as systemd does, keeps it in a log.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

from spm.cli.options import Options

FIRST_LOGIN = "first-login.json"  # in the data folder, for its owner alone
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
FOR_SCRIPTS = ("url", "login", "password", "app", "token")


def say(line: str) -> None:
    """Print one line of progress."""
    print(f"· {line}", file=sys.stderr, flush=True)


def json_line(login: Mapping[str, Any]) -> str:
    """The line for ``--json``, with null for values that are not known any more."""
    return json.dumps({name: login.get(name) for name in FOR_SCRIPTS})


def welcome(login: Mapping[str, Any], options: Options, *, shows_secrets: bool) -> str:
    """The text for people: the address, the login, the folders, how to stop."""
    rows = [("Open", login["url"]), ("Login", login["login"])]
    if login["password"] and not shows_secrets:
        rows += [("Password", f"in {options.data / FIRST_LOGIN}   (change it on your account page)")]
    elif login["password"]:
        rows += [("Password", f"{login['password']}   (change it on your account page)")]
    if login["token"] and shows_secrets:
        rows += [("Token", f"{login['token']}   (for sending your own data)")]
    if options.host not in _LOOPBACK and not str(login["url"]).startswith("https://"):
        rows.append(("Beware", f"other machines reach {options.host} without TLS, so passwords are sent in the clear"))
    if not options.spark:
        rows.append(("Runs", "in one process of this machine, without Spark"))
    if login.get("kernels_later"):
        rows.append(("Wait", "samples are taken and read in some minutes: kernels are being compiled, once"))
    rows += [("Data", str(options.data)), ("Logs", str(options.data / "log")), ("Stop", "Ctrl-C")]
    lines = [f"  {name + ':':<10} {value}" for name, value in rows]
    return "\n".join(["", *lines, ""])
