"""One consistent read of an app: its state in this process, the tail, decoded pages, and the reader of an hour."""
