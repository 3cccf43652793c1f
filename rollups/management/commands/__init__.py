"""Commands that do runs, deletions, checks and moves."""
