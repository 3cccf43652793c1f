"""The walk through a plan: samples read, windows evaluated, vectors combined."""
