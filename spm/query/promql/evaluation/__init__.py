"""Walks a plan: reads samples, evaluates windows and combines vectors."""
