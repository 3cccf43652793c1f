"""Collects nginx from its ``stub_status`` page (``nginx``): connections, and requests since its start.

The settings say its ``url``; ``discover.HINTS`` has the paths that are tried where they say none.
"""

import re
from collections.abc import Sequence

from ingest.agent.collect.base import Options, access_of
from ingest.agent.collect.fetch import Unreachable, fetch
from ingest.agent.lines import Point

_PAGE = re.compile(
    r"Active connections:\s+(\d+)\s+server accepts handled requests(?: request_time)?\s+(\d+)\s+(\d+)\s+(\d+)[\d\s]*"
    r"Reading:\s+(\d+)\s+Writing:\s+(\d+)\s+Waiting:\s+(\d+)"
)
_FIELDS = ("active", "accepts", "handled", "requests", "reading", "writing", "waiting")


class NginxCollector:
    """Collects one page."""

    def __init__(self, options: Options) -> None:
        self._url, self._access = options["url"], access_of(options)

    def __call__(self) -> Sequence[Point]:
        return points(fetch(self._url, self._access).decode(errors="replace"), self._url)


def points(page: str, url: str) -> Sequence[Point]:
    """Returns a point with the seven numbers of the page."""
    match = _PAGE.search(page[:2_000])
    if match is None:
        raise Unreachable(f"{url} is no stub_status page; it begins with {page[:40]!r}")
    return [Point("nginx", dict(zip(_FIELDS, map(int, match.groups()), strict=True)), {"server": url})]
