"""The stream of events: what happened in an organisation, in one order, to be read from any position, again and again.

1. ``outbox.emit`` writes events in the transaction of their cause: both are stored or neither.
2. ``relay.advance`` gives them positions, once they are committed: a reader that goes on from a position skips nothing.
3. ``log.read`` returns what comes after a position; ``groups`` shares that out among the consumers of a group.

Nothing here is kept for each key: keys are columns of events, and a group has a bounded number of partitions.
"""
