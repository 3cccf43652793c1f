r"""Message ids that count: a sender that numbers its messages lets the server list those that never arrived.

    "\0SEQ" ‖ spool:6 ‖ number:6        16 bytes, big-endian; each message of a spool has the next number

A spool is a sender's unbroken count. A sender that cannot be sure of its count draws a new spool name and starts again
at 1. The server groups by spool and lists the missing numbers. Standard library only: agents use this module, too.
"""

PREFIX = b"\x00SEQ"
SPOOL_BYTES = 6
NUMBER_MAX = (1 << 48) - 1
_ID_BYTES = 16


def make(spool: bytes, number: int) -> bytes:
    """Returns the message id of a spool's message ``number``."""
    assert len(spool) == SPOOL_BYTES, "BUG: a spool's name has 6 bytes"
    assert 0 < number <= NUMBER_MAX, "BUG: a number that no id can hold"
    return PREFIX + spool + number.to_bytes(6, "big")


def split(message_id: bytes) -> tuple[bytes, int] | None:
    """Returns (spool, number) of such an id, or None for any other id."""
    if len(message_id) != _ID_BYTES or not message_id.startswith(PREFIX):
        return None
    return message_id[4:10], int.from_bytes(message_id[10:], "big")
