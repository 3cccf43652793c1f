"""What one task does: read an HourShard, merge and aggregate it, write its rows."""
