"""Modules that several parsers use: series cache, kernels over bytes and lines, names, times, protobuf, histograms."""
