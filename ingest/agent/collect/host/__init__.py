"""Collectors of the machine: processors, memory, disks, network, processes, containers, and the agent itself."""
