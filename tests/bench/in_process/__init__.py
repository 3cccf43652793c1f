"""Benchmarks of the product's steps in one process, without HTTP."""
