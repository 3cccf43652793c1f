"""Whether alerting works, as seen from outside of judges and senders: what stands still, and the alarm."""
