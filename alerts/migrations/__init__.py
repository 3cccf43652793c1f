"""Migrations of alerts. ``replaced`` has those that squashed ones replace, for databases that stopped between two of them."""

from pathlib import Path

__path__.append(str(Path(__file__).parent / "replaced"))
