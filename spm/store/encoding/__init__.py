"""Bytes to columns and back: codecs, framed blocks, Arrow buffers, and the kernels over columns."""
