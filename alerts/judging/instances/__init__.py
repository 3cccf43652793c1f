"""Instances of rules: their names and transitions, and rows of what a step says of each. Pure."""
