"""Tests of `spm.query`."""
