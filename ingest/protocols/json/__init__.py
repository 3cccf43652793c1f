"""JSON: lists of samples and columns of ours, and collectd's lists of values."""
