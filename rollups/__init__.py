"""The back room: compaction and rollups by Spark."""
