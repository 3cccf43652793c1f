"""What slow and hostile clients cost everybody else: pings, pushes and queries without them, and beside them.

The slow clients are a second process (``clients``): heads, bodies and readers that drip, and idle connections. Whatever
the server closes is opened again at once. Enter by ``slow``; wrong logins are in ``logins``.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

from tests.bench import report
from tests.bench.slow.neighbours import measured, open_target, print_line, print_ratio
from tests.servers.product import ROOT

_WARM_S, _SETTLE_S = 3, 3


def slow(options: argparse.Namespace, folder: Path) -> None:
    """Measure without slow clients, then beside ``options.slow`` of each kind for ``options.hold`` seconds."""
    with open_target(options, folder) as target:
        measured(target, _WARM_S)
        before, memory = measured(target, options.hold / 2), target.memory_bytes()
        print_line("without slow clients", before, memory)
        command = [sys.executable, "-m", "tests.bench.slow.clients", target.host, str(target.port), str(options.slow)]
        clients = subprocess.Popen(
            [*command, target.token], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert clients.stdin is not None
        assert clients.stdout is not None
        opened = clients.stdout.readline().strip()
        if not opened:
            raise RuntimeError(f"the slow clients ended with {clients.wait(60)}")
        print(opened, flush=True)
        time.sleep(_SETTLE_S)
        during, grown = measured(target, options.hold), target.memory_bytes()
        clients.stdin.write("\n")
        clients.stdin.flush()
        print(clients.stdout.readline().strip(), flush=True)
        print_line(f"beside {options.slow} of each kind", during, grown)
        print_ratio(before, during, grown - memory)
        clients.stdin.close()
        clients.wait(60)
        time.sleep(2)
        report.line("memory afterwards", memory_mb=target.memory_bytes() / 1e6)
