"""``bin/start`` and its tools: set-up, the supervisor of the processes, checks of the machine."""
