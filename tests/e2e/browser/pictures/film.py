"""Takes screenshots of pages, each under a caption, and writes them as one animated picture.

The words of the pages (navigation, headings, labels, buttons) go into the file: so a picture says which pages it was
made from. Enter by ``Film``, ``Shown`` and ``words_of``.
"""

import io
import json
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image, ImageSequence
from playwright.sync_api import Page

_DESCRIPTION = 0x010E  # the field of Exif for words about a picture

_CAPTION = """([text, step, steps]) => {
    document.querySelector("#film-caption")?.remove();
    const bar = document.body.appendChild(document.createElement("p"));
    bar.id = "film-caption";
    Object.assign(bar.style, {
        position: "fixed", inset: "auto 0 0 0", zIndex: 1000, margin: 0, padding: "0 20px", height: "48px",
        display: "flex", alignItems: "center", justifyContent: "space-between", background: "#172033", color: "#fff",
        fontSize: "19px", fontWeight: 600, lineHeight: 1,
    });
    bar.append(Object.assign(document.createElement("span"), { textContent: text }));
    const dots = bar.appendChild(document.createElement("span"));
    dots.style.display = "flex";
    dots.style.gap = "8px";
    for (let at = 1; at <= steps; at += 1) {
        const dot = dots.appendChild(document.createElement("i"));
        const background = at === step ? "#fff" : "#55617a";
        Object.assign(dot.style, { width: "10px", height: "10px", borderRadius: "5px", background });
    }
}"""

_WORDS = """() => [...document.querySelectorAll("nav a, h1, h2, h3, label, th, button, #film-caption span:first-child")]
    .filter((each) => each.checkVisibility() && each.firstChild)
    .map((each) => each.firstChild.textContent.replace(/[\\d.,:]+/g, "#").trim())
    .filter((text) => text)"""


@dataclass(slots=True)
class Film:
    """The frames so far. ``steps``: how many captions there will be."""

    steps: int
    frames: list[tuple[Image.Image, int]] = field(default_factory=list)
    captions: list[str] = field(default_factory=list)
    words: dict[str, None] = field(default_factory=dict)  # in the order of their first frame

    def take(self, page: Page, caption: str, ms: int) -> None:
        """Show what the page shows now for so long, under a caption; an equal one goes on."""
        if caption not in self.captions[-1:]:
            self.captions.append(caption)
        page.evaluate(_CAPTION, [caption, len(self.captions), self.steps])
        self.words |= dict.fromkeys(page.evaluate(_WORDS))
        frame = Image.open(io.BytesIO(page.screenshot(animations="disabled", caret="hide"))).convert("RGB")
        self.frames.append((frame, ms))

    def save(self, path: Path) -> None:
        """Write a WebP that begins anew after its last frame."""
        about = Image.Exif()
        about[_DESCRIPTION] = json.dumps([*self.words])
        path.parent.mkdir(exist_ok=True)
        [first, *others] = [frame for frame, _ in self.frames]
        first.save(
            path,
            save_all=True,
            append_images=others,
            duration=[ms for _, ms in self.frames],
            loop=0,
            lossless=True,
            quality=75,
            method=4,  # the next one takes twenty times as long for an eighth less
            exif=about,
        )


@dataclass(frozen=True, slots=True)
class Shown:
    """What people see of an animated picture, and what it weighs."""

    size: tuple[int, int]
    frames: list[bytes]  # their pixels
    ms: int  # of all frames
    begins_anew: bool
    file_bytes: int

    @classmethod
    def read(cls, path: Path) -> "Shown":
        """Decode a file as a browser does."""
        frames, ms = [], 0
        with Image.open(path) as image:
            for frame in ImageSequence.Iterator(image):
                frames.append(frame.convert("RGB").tobytes())
                ms += frame.info["duration"]
            return cls(image.size, frames, ms, image.info["loop"] == 0, path.stat().st_size)


def words_of(path: Path) -> list[str]:
    """Return the words of the pages that a picture was made from."""
    with Image.open(path) as image:
        return json.loads(image.getexif()[_DESCRIPTION])  # type: ignore[no-any-return]
