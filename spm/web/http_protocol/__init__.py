"""HTTP/1.1 between clients that may be slow or hostile and an ASGI application.

Enter by ``BoundedHttpProtocol``, which uvicorn takes as ``http``::

    connections = Connections(HttpBounds(), TrustedProxies.parse(["127.0.0.1"]))
    uvicorn.Config(app, http=partial(BoundedHttpProtocol, connections=connections))
"""

from spm.web.http_protocol.bounds import HttpBounds
from spm.web.http_protocol.connections import Connections, allowed_connections, bound_system_buffers
from spm.web.http_protocol.exchange import header_line
from spm.web.http_protocol.protocol import BoundedHttpProtocol
from spm.web.http_protocol.repeated import AnswerAtOnce, Reply, WholeAnswer

__all__ = [
    "AnswerAtOnce",
    "BoundedHttpProtocol",
    "Connections",
    "HttpBounds",
    "Reply",
    "WholeAnswer",
    "allowed_connections",
    "bound_system_buffers",
    "header_line",
]
