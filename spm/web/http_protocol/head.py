"""Checks the head of a request before the application sees it.

The parser refuses most heads that could be read in two ways; this module refuses the rest. Enter by ``BadHead``, whose
status and text become the answer, and by the functions that raise it.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

from spm.limits import RETRY_AFTER_S

_BLANK_LINES = re.compile(rb"(?:\r\n)+")


class BadHead(Exception):
    """A head that is refused: by an HTTP status and a text for its sender."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


class UpgradeWanted(Exception):
    """A head asks for another protocol."""


def version_of(head: bytes, method: bytes, url: bytes) -> str:
    """Returns the version in the first line of a head: 1.1 or 1.0."""
    end = head.find(b"\r\n")
    version = head[end - 9 : end]
    if version[:6] != b" HTTP/" or end != len(method) + 1 + len(url) + len(version):
        raise BadHead(400, "The first line is no method, target and HTTP/1.1 with a space between.")
    if version == b" HTTP/1.1":
        return "1.1"
    if version == b" HTTP/1.0":
        return "1.0"
    raise BadHead(505, "This server speaks HTTP/1.1.")


def without_blank_lines(data: bytes | bytearray) -> bytes | bytearray:
    """Returns the bytes behind blank lines, which some old clients send after a body."""
    blank = _BLANK_LINES.match(data)
    return data[blank.end() :] if blank else data


def check_unfinished(data: bytes | bytearray, start: int) -> None:
    """Raises ``BadHead`` where the begin of a head cannot become one, so that its sender need not wait for the end.

    What stands before ``start`` was checked.
    """
    if data != b"\r" and not data[:1].isalpha():
        raise BadHead(400, "The request does not begin with a method.")
    if data.count(b"\n", start) != data.count(b"\r\n", max(0, start - 1)):
        raise BadHead(400, "A line of the head does not end with CR LF.")


def check_framing(special: Mapping[bytes, list[bytes]], version: str) -> None:
    """Raises ``BadHead`` where a request's end could be read in two ways, or headers ask for what is not there."""
    coding = special.get(b"transfer-encoding")
    if coding is not None and (version != "1.1" or [value.strip().lower() for value in coding] != [b"chunked"]):
        raise BadHead(501, "The only transfer coding of this server is chunked.")
    hosts = len(special.get(b"host", ()))
    if hosts > 1 or (version == "1.1" and not hosts):
        raise BadHead(400, "The head must have one Host header.")
    if version == "1.1" and any(value.lower() != b"100-continue" for value in special.get(b"expect", ())):
        raise BadHead(417, "The only expectation that this server meets is 100-continue.")


def headers_of(headers: list[tuple[bytes, bytes]], head: bytes, authority: bytes | None) -> list[tuple[bytes, bytes]]:
    """Returns the headers of a head as the application gets them.

    Values lose the blanks at their end. Names with an underscore are left out, since CGI's names would take them for
    others. The host of a target replaces the Host header.
    """
    if b" \r\n" in head or b"\t\r\n" in head:
        headers = [(name, value.rstrip(b" \t")) for name, value in headers]
    if b"_" in head:
        headers = [(name, value) for name, value in headers if b"_" not in name]
    if authority is not None:
        headers = [(b"host", authority), *(pair for pair in headers if pair[0] != b"host")]
    return headers


def keeps_alive(parser: Any, version: str, special: Mapping[bytes, list[bytes]]) -> bool:
    """Returns whether the client of a head that was parsed lets its connection stay."""
    if version == "1.1":
        return bool(parser.should_keep_alive())
    return [value.lower() for value in special.get(b"connection", ())] == [b"keep-alive"]


def unquoted(path: bytes) -> str:
    """Returns a path with its percent signs read; those of no UTF-8 are replaced."""
    text = path.decode("ascii")
    return unquote(text) if "%" in text else text


def target_of(url: bytes, method: bytes) -> tuple[bytes, bytes, bytes | None]:
    """Returns path, query, and the authority that replaces the Host header (``None``: there is none) of a target."""
    authority = None
    if url[:1] == b"/":
        target = url
    elif url == b"*" and method == b"OPTIONS":
        return url, b"", None
    else:
        scheme, mark, rest = url.partition(b"://")
        if not mark or scheme.lower() not in (b"http", b"https"):
            raise BadHead(400, "The request's target is no path.")
        end = min((at for at in (rest.find(b"/"), rest.find(b"?"), rest.find(b"#")) if at >= 0), default=len(rest))
        authority, target = rest[:end], rest[end:] if rest[end : end + 1] == b"/" else b"/" + rest[end:]
        if not authority or b"@" in authority:
            raise BadHead(400, "The request's target names no host.")
    target = target.partition(b"#")[0]
    path, _, query = target.partition(b"?")
    return path, query, authority


def short_answer(status: int, text: str, headers: list[tuple[bytes, bytes]]) -> bytes:
    """Returns a whole answer, the last one of its connection."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    body = text.encode() + b"\n"
    lines = [f"HTTP/1.1 {status} {phrase}".encode()]
    lines += [name + b": " + value for name, value in headers]
    lines += [b"content-type: text/plain; charset=utf-8", b"content-length: %d" % len(body), b"connection: close"]
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        lines.append(b"retry-after: %d" % RETRY_AFTER_S)
    return b"\r\n".join([*lines, b"", body])
