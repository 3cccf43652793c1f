"""A runner for scripts in Prometheus' public promqltest format: `load`, `clear`, `eval`, `expect`.

`script` reads a script into commands, `case` runs one evaluation against the engine over samples in memory and says
whether it passed, failed, or has to be skipped and why. `python -m tests.spm.query.promql.promqltest PATH…` runs files
or folders of scripts and lists every case that did not pass by file and line.
"""
