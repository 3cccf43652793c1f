"""What the parsers share: series cache, kernels over bytes and lines, names, times, protobuf, histograms."""
