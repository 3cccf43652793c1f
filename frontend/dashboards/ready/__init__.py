"""Ready dashboards for what senders usually send, offered where their metrics arrive. Enter by ``offers``."""
