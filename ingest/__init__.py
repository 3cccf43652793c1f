"""From the wire to the store: protocols, admission, stamps, transports, the writer, and the agent."""
