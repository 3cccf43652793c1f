"""Commands: retract, undo."""
