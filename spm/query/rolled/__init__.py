"""Answers from hourly and daily aggregates and sketches, where these are exact."""
