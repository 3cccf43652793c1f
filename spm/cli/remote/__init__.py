"""The command line ``spm``, for any machine: it uses the REST interface alone, with a token."""
