"""What became of every stamp: commit records, outcomes, watermarks, the balance, dead letters, quotas."""
