"""Influx line protocol: the reader, the compiled kernels, and the exact parser."""
