"""Serves the agent as one file for hosts without our package: ``GET /agent.pyz``, which Python 3.11 and newer runs.

The archive is built once per process from this tree's own files: the agent, the side-car, and the few modules they
import. Equal files give equal bytes, on every machine with one zlib; their SHA-256 is at ``/agent.pyz.sha256``, as
``sha256sum -c`` reads it, and in the commands of the page. psutil is the host's, or the file installs it beside itself
by the lock file that it carries (``ingest.agent.own_psutil``). No token is needed: the file holds only the program.
"""

import hashlib
import io
import zipfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from django.http import HttpRequest, HttpResponse, HttpResponseNotModified
from django.views.decorators.http import require_safe

from ingest.agent.version import VERSION

_ROOT = Path(__file__).resolve().parents[1]
_FOLDERS = ("ingest/agent", "ingest/sidecar")
_FILES = (
    "ingest/__init__.py",
    "ingest/routing.py",
    "spm/__init__.py",
    "spm/clock.py",
    "spm/errors.py",
    "spm/limits.py",
    "spm/message_ids.py",
)
_LOCK = "requirements/agent.txt"
_MAIN = """\
import sys

if sys.version_info < (3, 11):
    sys.exit("spm-agent: this needs Python 3.11 or newer")
from pathlib import Path
from pkgutil import get_data

from ingest.agent.own_psutil import provide_psutil

problem = provide_psutil(Path(sys.argv[0]), get_data("ingest.agent", "requirements.txt"))
if problem:
    sys.exit(f"spm-agent: {problem}")
if sys.argv[1:2] == ["sidecar"]:
    del sys.argv[1]
    from ingest.sidecar.__main__ import main
else:
    from ingest.agent.__main__ import main
sys.exit(main())
"""
_VERSION = '''"""Which version of the agent this is."""

VERSION = {version!r}
USER_AGENT = f"spm-agent/{{VERSION}}"
'''
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest time of a zip entry; a constant time gives equal archives for equal files
_CACHE_S = 300


@dataclass(frozen=True, slots=True)
class AgentArchive:
    """The bytes of the file, and their SHA-256 in hexadecimal digits."""

    content: bytes
    sha256: str


@require_safe
def agent_file(request: HttpRequest) -> HttpResponse:
    """Answer with the file, or with 304 if the client has it."""
    archive = agent_archive()
    etag = f'"{archive.sha256[:16]}"'
    if request.headers.get("If-None-Match") == etag:
        return HttpResponseNotModified(headers={"ETag": etag})
    headers = {
        "ETag": etag,
        "Cache-Control": f"public, max-age={_CACHE_S}",
        "Content-Disposition": 'attachment; filename="agent.pyz"',
    }
    return HttpResponse(archive.content, content_type="application/zip", headers=headers)


@require_safe
def agent_checksum(_request: HttpRequest) -> HttpResponse:
    """Answer with the line by which ``sha256sum -c`` checks the file."""
    return HttpResponse(f"{agent_archive().sha256}  agent.pyz\n", content_type="text/plain")


@lru_cache(maxsize=1)
def agent_archive() -> AgentArchive:
    """Build the archive, once."""
    names = [
        *_FILES,
        *(path.relative_to(_ROOT).as_posix() for folder in _FOLDERS for path in (_ROOT / folder).rglob("*.py")),
    ]
    texts = {name: (_ROOT / name).read_bytes() for name in names}
    texts["ingest/agent/version.py"] = _VERSION.format(version=VERSION).encode()
    texts["ingest/agent/requirements.txt"] = (_ROOT / _LOCK).read_bytes()
    texts["__main__.py"] = _MAIN.encode()
    raw = io.BytesIO(b"#!/usr/bin/env python3\n")
    raw.seek(0, io.SEEK_END)
    with zipfile.ZipFile(raw, "a", zipfile.ZIP_DEFLATED) as archive:
        for name, text in sorted(texts.items()):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), text, zipfile.ZIP_DEFLATED)
    content = raw.getvalue()
    return AgentArchive(content, hashlib.sha256(content).hexdigest())
