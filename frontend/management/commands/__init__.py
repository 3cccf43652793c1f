"""Commands of the desk: retract, undo."""
