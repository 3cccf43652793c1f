"""The balance for people: where samples are, completeness by source, watermarks, dead letters."""
