"""What a query asks, what it may cost, and when it may run: matchers and batches, provenance, budget, admission."""
