"""What a process loads at its start: a web server or worker that was killed is back when its imports are done."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = (
    "frontend.urls",
    "rest_framework.serializers",
    "drf_spectacular.openapi",
    "requests",
    "unfold.sites",
    "psycopg",
)
OTHERS = ("pyspark", "pandas", "happybase", "pika")  # named by a setting, or needed by a run in a process of its own
STARTS = {
    "web": ("import spm.web.asgi", (*PAGES, *OTHERS, "celery", "kombu")),
    "worker": (
        "import spm.worker; spm.worker.app.loader.init_worker()",
        (*PAGES, *OTHERS, "gunicorn", "celery.bin.celery", "prompt_toolkit"),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", STARTS)
def test_start_loads_nothing_that_only_later_requests_or_other_processes_need(kind: str) -> None:
    start, unwanted = STARTS[kind]
    code = f"{start}; import json, sys; print(json.dumps([m for m in {unwanted} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


def test_tasks_are_sent_by_beat_alone_since_no_other_process_knows_the_broker() -> None:
    senders = ("delay", "apply_async", "send_task")
    modules = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for room in ("spm", "ingest", "rollups", "alerts", "frontend")
        for path in (ROOT / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in senders
    ]
    assert modules == []
