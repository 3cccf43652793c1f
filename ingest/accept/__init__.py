"""Acceptance of messages: identity, admission, stamp, announcement, and what is recorded about senders."""
