"""The documents of the project as pages of help: rendered, linked with one another, and searched.

The index is ``docs/README.md``: its headings are the four kinds of documents, its lists name them. What its links lead
to, directly or through other documents, has a page; a linked file that is no document can be read as it is. Links that
lead nowhere and documents to which none leads are ``problems``: pages do without them, and a test wants none.
Enter by ``read_library``.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

INDEX = "docs/README.md"
_markdown = MarkdownIt("commonmark", {"html": False}).enable("table")


@dataclass(frozen=True, slots=True)
class Section:
    """What stands below one heading, as text to search in."""

    document: str
    anchor: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Document:
    """A rendered document. ``contents``: its second headings, each with its anchor."""

    name: str
    title: str
    html: str
    contents: Sequence[tuple[str, str]]
    sections: Sequence[Section]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of documents, as the index has it: names, titles and what they are about."""

    title: str
    entries: Sequence[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class Library:
    """All documents by name; ``files``: what else they link to, by the path that addresses have."""

    documents: Mapping[str, Document]
    kinds: Sequence[Kind]
    files: Mapping[str, Path]
    problems: Sequence[str]


@dataclass(frozen=True, slots=True)
class Hit:
    """A section in which all words of a search stand; ``around``: its text beside the first of them."""

    document: Document
    section: Section
    around: str


@dataclass(slots=True)
class _Reading:
    """What is known while documents are read: their tokens by path, and what their links name."""

    root: Path
    tokens: dict[str, list[Token]] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def read_library(root: Path) -> Library:
    """Read the index and all that it leads to; without an index, as in a wheel, there is no document."""
    reading = _Reading(root)
    if not (root / INDEX).is_file():
        return Library({}, [], {}, [])
    waiting = [INDEX]
    while waiting:
        path = waiting.pop()
        if path not in reading.tokens:
            reading.tokens[path] = _markdown.parse((root / path).read_text())
            waiting += [target for target, _ in _targets(path, reading) if target.endswith(".md")]
    anchors = {path: dict(_anchors(tokens)) for path, tokens in reading.tokens.items()}
    kinds = list(_kinds(reading, anchors))  # before addresses of the site take the place of paths
    documents = {name_of(path): _document(path, reading, anchors) for path in reading.tokens}
    del documents[name_of(INDEX)]
    unread = {each.relative_to(root).as_posix() for each in (root / "docs").rglob("*.md")} - reading.tokens.keys()
    reading.problems += [f"{path}: no document leads to it" for path in sorted(unread)]
    return Library(documents, kinds, reading.files, reading.problems)


def name_of(path: str) -> str:
    """Return the name of a document: its path without ``docs``, its kind's folder and ending, in small letters."""
    stem = path.removeprefix("docs/").removesuffix(".md").lower()
    for folder in ("how-to/", "reference/", "spm/"):
        stem = stem.removeprefix(folder)
    return stem.removesuffix("/readme")


def search(library: Library, words: str, most: int) -> list[Hit]:
    """Return the sections in which every word stands: first those with the words in titles, guides before others."""
    wanted = words.lower().split()
    kinds = {name: rank for rank, kind in enumerate(library.kinds) for name, _, _ in kind.entries}
    hits = []
    for document in library.documents.values():
        for section in document.sections:
            title, text = f"{document.title} {section.title}".lower(), section.text.lower()
            if wanted and all(word in title or word in text for word in wanted):
                missing = sum(word not in title for word in wanted)
                remote = 1.5 * kinds.get(document.name, len(library.kinds)) / max(1, len(library.kinds))
                density = sum(text.count(word) for word in wanted) / (len(text) + 200) ** 0.5
                hits.append(((missing + remote, -density), Hit(document, section, _around(section.text, wanted))))
    return [hit for _, hit in sorted(hits, key=lambda each: each[0])[:most]]


def _around(text: str, words: Sequence[str], width: int = 160) -> str:
    places = [place for word in words if (place := text.lower().find(word)) >= 0]
    begin = max(0, min(places, default=0) - width // 3)
    begin = text.rfind(" ", 0, begin) + 1 if begin else 0
    cut = text[begin : begin + width].strip()
    return f"{'… ' if begin else ''}{cut}{' …' if begin + width < len(text) else ''}"


def _inline(tokens: Sequence[Token]) -> Iterator[Token]:
    for token in tokens:
        yield from token.children or ()


def _targets(path: str, reading: _Reading) -> Iterator[tuple[str, str]]:
    """Yield what the links of a document lead to within the project: path and anchor; note those that lead nowhere."""
    for token in _inline(reading.tokens[path]):
        href = str(token.attrGet("href") or token.attrGet("src") or "")
        if not href or "://" in href or href.startswith("mailto:"):
            continue
        place, _, anchor = href.partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), place)) if place else path
        if target.startswith("..") or not (reading.root / target).exists():
            reading.problems.append(f"{path}: {href} leads nowhere")
        else:
            yield target, anchor


def _anchors(tokens: Sequence[Token]) -> Iterator[tuple[str, str]]:
    """Yield the anchor and the text of each heading; of equal ones the later have numbers."""
    used: dict[str, int] = {}
    for opening, content in pairwise(tokens):
        if opening.type == "heading_open":
            text = _plain(content)
            anchor = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            count = used[anchor] = used.get(anchor, -1) + 1
            anchor = f"{anchor}-{count}" if count else anchor
            opening.attrSet("id", anchor)
            yield anchor, text


def _plain(inline: Token) -> str:
    parts = (" " if each.type in ("softbreak", "hardbreak") else each.content for each in inline.children or ())
    return "".join(parts)


def _document(path: str, reading: _Reading, anchors: Mapping[str, Mapping[str, str]]) -> Document:
    tokens, name = reading.tokens[path], name_of(path)
    for token in _inline(tokens):
        for attribute in ("href", "src"):
            if (href := token.attrGet(attribute)) is not None:
                token.attrSet(attribute, _address(path, str(href), reading, anchors))
    title = next(iter(anchors[path].values()), name)
    body = tokens[3:] if tokens and tokens[0].type == "heading_open" else tokens
    html = _markdown.renderer.render(body, _markdown.options, {})
    html = html.replace("<table>", '<div class="scroll" tabindex="0"><table>').replace("</table>", "</table></div>")
    html = html.replace("<pre>", '<pre tabindex="0">').replace("<th>", '<th scope="col">')
    contents = [
        (str(opening.attrGet("id")), _plain(content))
        for opening, content in pairwise(tokens)
        if opening.type == "heading_open" and opening.tag == "h2"
    ]
    return Document(name, title, html, contents, list(_sections(name, title, tokens)))


def _address(path: str, href: str, reading: _Reading, anchors: Mapping[str, Mapping[str, str]]) -> str:
    """Return where a link leads on the site; what lies outside of the project stays as it is."""
    if "://" in href or href.startswith("mailto:"):
        return href
    place, _, anchor = href.partition("#")
    target = posixpath.normpath(posixpath.join(posixpath.dirname(path), place)) if place else path
    if target == INDEX:
        return "/help"
    if target in reading.tokens:
        if anchor and anchor not in anchors[target]:
            reading.problems.append(f"{path}: {href} names no heading")
        return f"/help/docs/{name_of(target)}{'#' + anchor if anchor else ''}"
    if (reading.root / target).is_file():
        reading.files[target] = reading.root / target
        return f"/help/files/{target}"
    return href


def _sections(name: str, title: str, tokens: Sequence[Token]) -> Iterator[Section]:
    anchor, heading, texts = "", title, list[str]()
    is_heading = False
    for token in tokens:
        if token.type == "heading_open":
            if texts:
                yield Section(name, anchor, heading, " ".join(texts))
            anchor, texts, is_heading = str(token.attrGet("id")), [], True
        elif is_heading and token.type == "inline":
            heading, is_heading = _plain(token), False
        elif token.type == "inline":
            texts.append(_plain(token))
        elif token.type in ("fence", "code_block"):
            texts.append(" ".join(token.content.split()))
    if texts:
        yield Section(name, anchor, heading, " ".join(texts))


def _kinds(reading: _Reading, anchors: Mapping[str, Mapping[str, str]]) -> Iterator[Kind]:
    """Yield the kinds of the index: each second heading with the documents that the list below it begins with."""
    title, entries = "", list[tuple[str, str, str]]()
    tokens = reading.tokens[INDEX]
    for number, token in enumerate(tokens):
        if token.type == "heading_open" and token.tag == "h2":
            if entries:
                yield Kind(title, entries)
            title, entries = _plain(tokens[number + 1]), []
        elif token.type == "list_item_open" and title:
            entries += _entry(tokens[number + 2], anchors)
    if entries:
        yield Kind(title, entries)


def _entry(inline: Token, anchors: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str, str]]:
    href = next((str(each.attrGet("href")) for each in inline.children or () if each.type == "link_open"), "")
    target = posixpath.normpath(posixpath.join("docs", href))
    if target in anchors:
        yield name_of(target), next(iter(anchors[target].values())), _plain(inline).partition(": ")[2]
