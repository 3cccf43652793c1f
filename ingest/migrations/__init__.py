"""Migrations of ingest: one makes all tables, and replaces those in ``replaced``, which older databases went through."""

from pathlib import Path

__path__.append(str(Path(__file__).parent / "replaced"))
