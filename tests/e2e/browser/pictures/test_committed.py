"""The pictures that README.md shows: there, moving, sharp, and light enough to be there at once."""

import re
from itertools import pairwise
from pathlib import Path

from PIL import Image

from tests.e2e.browser.pictures.film import Shown

ROOT = Path(__file__).parents[4]
STILL = ROOT / "docs" / "chart.png"
ANIMATED = ROOT / "docs" / "retraction.webp"
FILE_BYTES_MAX = 600_000


def is_light(shown: Shown) -> bool:
    """Whether an animated picture loads fast, fits the column of a README and is over before a reader goes on."""
    return shown.file_bytes <= FILE_BYTES_MAX and shown.size[0] <= 1_200 and 6_000 <= shown.ms <= 9_000


def test_the_animated_picture_moves_without_end_and_is_light() -> None:
    shown = Shown.read(ANIMATED)
    assert is_light(shown)
    assert shown.begins_anew
    assert [at for at, (one, next_one) in enumerate(pairwise(shown.frames)) if one == next_one] == []
    assert len(shown.frames) >= 7


def test_the_still_picture_is_one_of_a_whole_page() -> None:
    with Image.open(STILL) as image:
        assert image.size == (1280, 850)
    assert 20_000 < STILL.stat().st_size < FILE_BYTES_MAX


def test_readme_shows_the_still_one_to_people_who_want_no_motion() -> None:
    [shown] = re.findall(r"<picture>.*?</picture>", (ROOT / "README.md").read_text(), re.DOTALL)
    files = dict(re.findall(r"<(source|img)\b[^>]*\bsrc(?:set)?=\"([^\"]+)\"", shown))
    assert {tag: ROOT / name for tag, name in files.items()} == {"source": STILL, "img": ANIMATED}
    assert re.search(r'<source media="\(prefers-reduced-motion: reduce\)"', shown)
    assert re.search(r'<img [^>]*alt="[^"]{40,}"', shown)
