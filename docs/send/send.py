"""Delivers lines of Influx line protocol, as they come on standard input, with nothing but Python's standard library:

    echo "room,floor=2 temperature=21.5" | SPM_URL=http://localhost:8000 SPM_TOKEN=spm_… python3 send.py

In bodies of 5,000 lines, each under an id of its own: what is sent again after a failure is counted once.
Lines without a time get the server's; give your own in milliseconds if what you send may have to wait.
"""

import gzip
import itertools
import os
import sys
import time
import urllib.error
import urllib.request
import uuid


def deliver(lines: list[str]) -> bool:
    """One body, until the server has it for good; False where it refuses lines, which saying again would not help."""
    headers = {
        "Authorization": f"Bearer {os.environ['SPM_TOKEN']}",
        "Content-Encoding": "gzip",
        "X-Message-Id": uuid.uuid4().hex,
    }
    body = gzip.compress("".join(lines).encode())
    request = urllib.request.Request(f"{os.environ['SPM_URL']}/write?precision=ms", body, headers)
    pause = 1.0
    while True:
        wait = pause
        try:
            with urllib.request.urlopen(request, timeout=30):
                return True
        except urllib.error.HTTPError as error:
            if error.code not in (408, 429) and error.code < 500:
                print(error.read().decode(), file=sys.stderr)
                return False
            wait = float(error.headers.get("Retry-After") or pause)
            print(f"waiting {wait} s: {error}", file=sys.stderr)
        except OSError as error:  # not there
            print(f"waiting {wait} s: {error}", file=sys.stderr)
        time.sleep(wait)
        pause = min(2 * pause, 60)


taken = [deliver(lines) for lines in iter(lambda: list(itertools.islice(sys.stdin, 5_000)), [])]
sys.exit(0 if all(taken) else 1)
