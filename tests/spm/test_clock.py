"""Claims about spm/clock.py: each push and query reads the clock some ten times, so reading it is one call."""

import sys
from typing import Any

from spm.clock import SystemClock


def test_reading_the_machines_clock_runs_no_function_of_python() -> None:
    clock, calls = SystemClock(), list[str]()

    def note(frame: Any, event: str, _: object) -> None:
        if event == "call":
            calls.append(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        first, second = clock.monotonic(), clock.monotonic()
    finally:
        sys.setprofile(before)
    assert calls == []
    assert first <= second
