"""The transports between an accepting process and the store. Enter by ``open_transport(kind, …)``.

The module of the chosen kind is loaded by name, so that the embedded default needs no RabbitMQ library.
"""

import importlib

from ingest.transport.base import Transport
from spm.errors import Refused

_MODULES = {"direct": "ingest.transport.direct", "amqp": "ingest.transport.amqp"}


def open_transport(kind: str, *, store_url: str, amqp_url: str = "") -> Transport:
    """Return the transport of this kind; raise ``Refused`` for an unknown one."""
    if kind not in _MODULES:
        raise Refused("unknown transport", got=kind, wanted=" or ".join(_MODULES))
    module = importlib.import_module(_MODULES[kind])
    transport: Transport = module.open_url(amqp_url if kind == "amqp" else store_url)
    return transport
