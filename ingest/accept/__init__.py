"""Acceptance: identity, quotas, stamp, announcement, and what is recorded about senders."""
