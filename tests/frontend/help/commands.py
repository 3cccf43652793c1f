"""Reads a command with curl as a shell does, and asks what it says without a network."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus, urlsplit

from django.conf import settings
from django.db import transaction
from django.http import HttpResponse
from django.test import Client

_FORM = "application/x-www-form-urlencoded"


@dataclass(slots=True)
class Request:
    """What curl would send."""

    address: str = ""
    method: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    cookies: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def ask(self) -> HttpResponse:
        """Return the answer of the product; what it changed in the database is taken back."""
        browser = Client(raise_request_exception=False, enforce_csrf_checks=True)
        for name, value in self.cookies.items():
            browser.cookies[name] = value
        kind = self.headers.get("Content-Type", _FORM if self.body else "")
        parts = urlsplit(self.address)
        with transaction.atomic():
            answer: Any = browser.generic(
                self.method, parts.path, self.body, kind, QUERY_STRING=parts.query, headers=self.headers
            )
            if answer.streaming:
                b"".join(answer)
            transaction.set_rollback(True)
        return answer  # type: ignore[no-any-return]


def words_of(source: str, variables: Mapping[str, str]) -> tuple[bytes, list[str]]:
    """Return what stands before the pipe, printed, and the words after ``curl``, as the shell makes them."""
    before, _, after = source.rpartition("curl ")
    shell = {"env": {**os.environ, **variables}, "capture_output": True, "check": True}
    printed = subprocess.run(["sh", "-euc", before.rstrip(" |")], **shell).stdout  # type: ignore[call-overload]
    done = subprocess.run(["sh", "-euc", f"printf '%s\\0' {after}"], **shell)  # type: ignore[call-overload]
    return printed, done.stdout.decode().split("\0")[:-1]


def request_of(source: str, variables: Mapping[str, str]) -> Request:
    """Return what a command would send."""
    printed, words = words_of(source, variables)
    request, pairs, is_get, rest = Request(), [], False, iter(words)
    for word in rest:
        match word:
            case "-X":
                request.method = next(rest)
            case "-H":
                name, _, value = next(rest).partition(": ")
                request.headers[name] = value
            case "-b":
                request.cookies |= dict(each.split("=", 1) for each in next(rest).split("; "))
            case "-e":
                request.headers["Referer"] = next(rest)
            case "-G":
                is_get = True
            case "--data-urlencode":
                name, _, value = next(rest).partition("=")
                pairs.append(f"{name}={quote_plus(value)}")
            case "--data-binary":
                body = next(rest)
                request.body = printed if body == "@-" else body.encode()
            case _:
                assert word.startswith(settings.SPM_BASE_URL), word
                request.address = word.removeprefix(settings.SPM_BASE_URL)
    if is_get:
        request.address += "?" + "&".join(pairs)
    elif pairs:
        request.body = "&".join(pairs).encode()
    request.method = request.method or ("POST" if "--data" in source and not is_get else "GET")
    return request
