"""Compiled and whole-array functions over numbers and the samples of windows."""
