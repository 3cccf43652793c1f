"""Metadata in comments of a text body: it is read apart from samples and never rejects a line."""

import time

import pytest

from ingest.protocols.prometheus import text as prometheus_text
from ingest.protocols.prometheus.text_comments import read_metadata
from spm.limits import METADATA_HELP_CHARS_MAX, METADATA_MESSAGE_MAX
from spm.wire import Metadata

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(b"# TYPE up gauge\nup 1\n", [("up", "gauge", "", "")], id="a type"),
        pytest.param(b"up 1\n#  HELP up   Is it?  \r\n", [("up", "", "Is it?", "")], id="help behind a sample"),
        pytest.param(b"# TYPE a counter\n# UNIT a s\n# HELP a A.\n# EOF", [("a", "counter", "A.", "s")], id="all"),
        pytest.param(b'# TYPE "a b.c" gauge\n', [("a b.c", "gauge", "", "")], id="a quoted name"),
        pytest.param(b"# HELP a one\\ntwo \\\\ \\q\n", [("a", "", "one\ntwo \\ \\q", "")], id="escapes"),
        pytest.param(b"# TYPE a untyped\n", [("a", "unknown", "", "")], id="an older word"),
        pytest.param(b"# TYPE b odd\n", [("b", "unknown", "", "")], id="another word"),
        pytest.param(b"# TYPE a counter\n# TYPE a gauge\n", [("a", "gauge", "", "")], id="twice"),
        pytest.param(b"# HELP a\n", [("a", "", "", "")], id="nothing said"),
        pytest.param(b"#\n# \n# TYPE\n#TYPE a gauge\n# TYPEa b\n# a comment\n", [], id="other comments"),
        pytest.param(b"up 1\n a # TYPE a gauge\n", [], id="within a line"),
        pytest.param(b"# HELP \xff x\n# TYPE " + b"m" * 300 + b" gauge\n", [], id="names that cannot be"),
        pytest.param(b"", [], id="nothing"),
    ],
)
def test_comments_describe_metrics(body: bytes, expected: list[tuple[str, str, str, str]]) -> None:
    assert list(read_metadata(body)) == [Metadata(*one) for one in expected]


def test_a_body_hands_its_descriptions_on_with_its_samples() -> None:
    parsed = prometheus_text.parse(b"# TYPE up gauge\nup 1\n# HELP up Is it?\n", now_ms=NOW_MS)
    assert (parsed.metadata, len(parsed.ts), parsed.rejected) == ((Metadata("up", "gauge", "Is it?", ""),), 1, 0)


def test_descriptions_are_bounded_in_number_and_length() -> None:
    many = b"".join(b"# TYPE m%d gauge\n" % n for n in range(METADATA_MESSAGE_MAX + 5))
    assert len(read_metadata(many)) == METADATA_MESSAGE_MAX
    [one] = read_metadata(b"# HELP m " + b"x" * 10_000)
    assert len(one.help) == METADATA_HELP_CHARS_MAX


@pytest.mark.timed
@pytest.mark.parametrize(
    "body", [b"#\n" * 10**6, b'# HELP "' + b"\\" * 10**6, b"# HELP " + b" " * 10**6], ids=["marks", "escapes", "spaces"]
)
def test_comments_of_no_use_cost_little(body: bytes) -> None:
    began = time.thread_time()
    assert read_metadata(body) == ()
    assert time.thread_time() - began < 1
