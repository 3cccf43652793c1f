"""Deletes rows for good: superseded rows, expired hours and days, retracted samples, deleted apps."""
