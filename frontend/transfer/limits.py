"""The bounds of imports, which this part alone has."""

IMPORTS_PARALLEL_MAX = 1  # imports of one organisation at once on a machine: each occupies a core and commits
IMPORTS_WAITING_MAX = 4  # more of them that wait in one process: vmctl sends two at a time by default
IMPORT_WAIT_S = 20.0  # for the one before it: most bodies of vmctl take a second
IMPORT_TIMEOUT_S = 3_600  # of one request, its waits for the app's rate among them
