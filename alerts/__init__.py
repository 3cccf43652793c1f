"""Rules on queries, their alerts, and the messages about them."""
