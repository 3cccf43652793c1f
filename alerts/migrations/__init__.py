"""Migrations of alerts: one makes all tables, and replaces those in ``replaced``, which older databases went through."""

from pathlib import Path

__path__ += [str(Path(__file__).parent / "replaced" / name) for name in ("from_0001", "from_0013")]
