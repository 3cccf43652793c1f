"""A real SMTP server on a free port that answers as a test says, and keeps what it took."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session
from django.test import override_settings


class MailServer:
    """A mail server that answers as a test says; ``received`` are the addresses and bytes that it took."""

    def __init__(self) -> None:
        self.recipient_answer = self.data_answer = "250 OK"
        self.received: list[tuple[list[str], bytes]] = []

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if self.recipient_answer.startswith("250"):
            envelope.rcpt_tos.append(address)
        return self.recipient_answer

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        if self.data_answer.startswith("250"):
            self.received.append((envelope.rcpt_tos, envelope.content or b""))  # type: ignore[arg-type]
        return self.data_answer


@contextmanager
def mail_server() -> Iterator[MailServer]:
    """Run the server; mail is sent there meanwhile."""
    answers = MailServer()
    controller = Controller(answers, hostname="127.0.0.1", port=free_port())
    controller.start()
    try:
        with override_settings(
            EMAIL_BACKEND="django.core.mail.backends.smtp.EmailBackend",
            EMAIL_HOST="127.0.0.1",
            EMAIL_PORT=controller.port,
            EMAIL_TIMEOUT=5,
        ):
            yield answers
    finally:
        controller.stop()


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
