"""Collectors of the machine itself: processors, memory, disks, network, processes, containers, the agent."""
