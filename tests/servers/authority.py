"""A certificate authority for tests, and what it signs for this machine: made by ``openssl`` when it is needed."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1"


@dataclass(frozen=True, slots=True)
class Signed:
    """A server's certificate and key, and the authority that vouches for it."""

    ca: Path
    certificate: Path
    key: Path


def sign(folder: Path) -> Signed:
    """A new authority and a certificate of it for this machine."""
    signed = Signed(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    ca_key, request, extra = folder / "ca.key", folder / "server.csr", folder / "names"
    extra.write_text(NAMES)
    new: list[str | Path] = ["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj"]
    _run([*new, "/CN=tests", "-x509", "-days", "2", "-keyout", ca_key, "-out", signed.ca])
    _run([*new, "/CN=localhost", "-keyout", signed.key, "-out", request])
    signing: list[str | Path] = [
        "openssl",
        "x509",
        "-req",
        "-days",
        "2",
        "-in",
        request,
        "-CA",
        signed.ca,
        "-CAkey",
        ca_key,
    ]
    _run([*signing, "-CAcreateserial", "-extfile", extra, "-out", signed.certificate])
    return signed


def _run(words: list[str | Path]) -> None:
    subprocess.run(list(map(str, words)), check=True, capture_output=True, timeout=60)
