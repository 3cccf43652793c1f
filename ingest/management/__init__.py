"""Commands of the front door."""
