"""Hours and days: aggregates, sketches, and the rows they are stored in."""
