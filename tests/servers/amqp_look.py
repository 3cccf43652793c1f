"""Looking into a queue without taking anything out of it."""

from dataclasses import dataclass

import pika

from ingest.transport.topology import Address


@dataclass(frozen=True, slots=True)
class Letter:
    """One message as it lies in a queue."""

    body: bytes
    headers: dict[str, object]


def letters(url: str, queue: str) -> list[Letter]:
    """The messages that wait in a queue, oldest first; they stay there."""
    connection = pika.BlockingConnection(pika.URLParameters(Address.parse(url).url))
    channel = connection.channel()
    bodies = []
    while True:
        method, properties, body = channel.basic_get(queue)
        if method is None:
            break
        bodies.append(Letter(body, dict(properties.headers or {})))
    connection.close()  # what was not acknowledged goes back
    return bodies


def depth_of(url: str, queue: str) -> int:
    """How many messages wait in a queue. They are not read: one in a reader's hand leaves its room to another."""
    connection = pika.BlockingConnection(pika.URLParameters(Address.parse(url).url))
    count: int = connection.channel().queue_declare(queue, passive=True).method.message_count
    connection.close()
    return count
