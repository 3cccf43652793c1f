"""What the page Explore is made of: its queries, formulas, and what changed in a range."""
