"""Commands of the front door: dead."""
