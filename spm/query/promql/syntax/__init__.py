"""Text to tree: the bounds, lexer and grammar of PromQL."""
