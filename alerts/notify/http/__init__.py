"""HTTP to addresses that customers choose: only to networks that are allowed, without redirects, in bounded time."""
