"""Tests of the query room."""
