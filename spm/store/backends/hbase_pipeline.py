"""Sends many calls of one kind over one connection to the gateway before it reads the first answer.

The gateway answers each call with a packet of its own. If a thread woke for each packet, it would spend more time on
taking the interpreter's lock than on its work, as fifteen other threads do the same. So the socket counts as readable
only when the last answer must have come (SO_RCVLOWAT) or the connection ends.

    written in one go    │call│call│call│ …        read in one go    │answer│answer│answer│ …
"""

import socket
from collections.abc import Sequence
from typing import Any

from thriftpy2.thrift import TMessageType

ANSWER_BYTES_MIN = 28  # of `true` for checkAndPut: its name, a number, one field; a failure takes more


def pipelined(client: Any, wire: socket.socket, call: str, arguments: Sequence[Any]) -> list[Any]:
    """Send the calls and return their answers; all answers, some forty bytes each, must fit the socket's buffer."""
    out = client._oprot
    for one in arguments:
        out.write_message_begin(call, TMessageType.CALL, 0)
        one.write(out)
        out.write_message_end()
    out.trans.flush()
    _readable_from(wire, ANSWER_BYTES_MIN * len(arguments))
    first = client._recv(call)
    _readable_from(wire, 1)
    return [first, *(client._recv(call) for _ in arguments[1:])]


def _readable_from(wire: socket.socket, count: int) -> None:
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
