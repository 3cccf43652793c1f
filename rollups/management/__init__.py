"""The commands of rollups, and the texts they write."""
