"""Turns a tree into a plan: checks types, resolves calls, and builds the frozen nodes that the evaluator walks."""
