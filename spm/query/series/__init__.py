"""Which series of an app match: the index of its dictionary, its labels by column, and their counts."""
