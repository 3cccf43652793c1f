"""The commands of the OpenAPI schema that need no more than a token and an app work as printed, with curl itself."""

import json
import os
import re
import subprocess
import urllib.request
from typing import Any

import pytest

from tests.clients.support.programs import program
from tests.servers.product import Served

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(600)]
GIVEN = {"TOKEN", "APP"}
OF_MISSING = {"rule_file", "consumer_group"}  # which nobody has written here
STATUS = "\n%{http_code}"


def operations(served: Served) -> list[dict[str, Any]]:
    """The operations of the running product that change nothing, or that send."""
    address = f"http://127.0.0.1:{served.port}/api/v1/schema?format=json"
    schema = json.load(urllib.request.urlopen(urllib.request.Request(address, headers=dict(served.headers))))
    return [
        {**operation, "method": method, "path": path}
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
        if method == "get" or "ingest" in operation["tags"] or path.startswith("/prometheus/")
    ]


def test_commands_that_read_or_send_work_as_printed(served: Served) -> None:
    program("curl", "curl")
    environment = {**os.environ, "TOKEN": served.token, "APP": str(served.app), "WRITE_OUT": STATUS}
    refused, count = {}, 0
    for operation in sorted(operations(served), key=lambda each: each["method"] == "get"):  # first what sends
        source = operation["x-codeSamples"][0]["source"]
        takes_more = operation.get("x-right", {}).get("scope", "read") != "read"
        if set(re.findall(r"\$([A-Z_]+)", source)) - GIVEN or takes_more or operation["operationId"] in OF_MISSING:
            continue
        shell = f'curl() {{ command curl -sS -w "$WRITE_OUT" "$@"; }}\n{source}'
        done = subprocess.run(["sh", "-c", shell], env=environment, capture_output=True, check=True, timeout=60)
        body, _, status = done.stdout.rpartition(b"\n")
        count += 1
        if not 200 <= int(status) < 300:
            refused[f"{operation['method']} {operation['path']}"] = (int(status), body[:200])
    assert count > 80
    assert refused == {}
