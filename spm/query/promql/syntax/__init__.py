"""Parses a text into a tree: the bounds, lexer and grammar of PromQL."""
