"""Readers of JSON: samples and columns in SPM's own form, and collectd's value lists."""
