"""Compiled and whole-array functions of samples in windows."""
