"""Reads the container recipe and does its steps in root file systems, without a container engine.

``stages`` parses the steps; ``build`` does those of one target and all that it copies from. The base image of every
``FROM`` is the folder that is given. Each kind of step that is not known here is an error. Enter by ``build``.
"""

import fnmatch
import json
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.bare.root_file_system import Inside, check_out, copied


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of the recipe: its name, that of its base, and its steps, each a word and the rest of its line."""

    name: str
    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)


@dataclass(slots=True)
class Image:
    """A built stage: its root file system, and how its programs run."""

    root: Path
    environ: dict[str, str] = field(default_factory=dict)
    folder: str = "/"
    user: str = "root"
    volume: str = ""
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)

    def inside(self, **options: object) -> Inside:
        """Returns how a command runs in it as the recipe says, but for the addresses: those of this machine alone."""
        environ = {**self.environ, "SPM_BIND": "127.0.0.1"}
        return Inside(self.root, user=self.user, folder=self.folder, environ=environ, **options)  # type: ignore[arg-type]


def stages(recipe: str) -> dict[str, Stage]:
    """Parses a recipe."""
    parsed: dict[str, Stage] = {}
    joined = re.sub(r"\\\n\s*", "", recipe)
    for line in (line for line in joined.splitlines() if line and not line.startswith("#")):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            stage = parsed.setdefault(name, Stage(name, base))
        else:
            stage.steps.append((word, rest.strip()))
    return parsed


def build(recipe: str, target: str, *, base: Path, context: Path, folder: Path) -> Image:
    """Builds a target and what it needs, a folder for each stage, below ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    return _Builder(stages(recipe), base, context, folder).image(target)


@dataclass(slots=True)
class _Builder:
    stages: Mapping[str, Stage]
    base: Path
    context: Path
    folder: Path
    images: dict[str, Image] = field(default_factory=dict)

    def image(self, name: str) -> Image:
        """Builds one stage, after those it needs."""
        if name not in self.images:
            stage = self.stages[name]
            below = self.image(stage.base) if stage.base in self.stages else Image(self.base)
            root = copied(below.root, self.folder / name)
            image = Image(root, dict(below.environ), below.folder, below.user, below.volume, below.entrypoint)
            image.command = below.command
            for word, rest in stage.steps:
                self._do(image, word, rest)
            self.images[name] = image
        return self.images[name]

    def _do(self, image: Image, word: str, rest: str) -> None:
        match word:
            case "WORKDIR":
                image.folder = rest
                (image.root / rest[1:]).mkdir(parents=True, exist_ok=True)
            case "ENV":
                image.environ |= dict(pair.split("=", 1) for pair in shlex.split(rest))
            case "COPY":
                self._copy(image, rest.split())
            case "RUN":
                print(image.inside().must("sh", "-c", rest))
            case "USER":
                image.user = rest
            case "VOLUME":
                image.volume = rest
            case "ENTRYPOINT":
                image.entrypoint = json.loads(rest)
            case "CMD":
                image.command = json.loads(rest)
            case "EXPOSE":
                pass  # says something, does nothing
            case _:
                raise ValueError(f"a step {word} in the recipe")

    def _copy(self, image: Image, words: list[str]) -> None:
        """Copies from another stage, or all that the file of ignored names lets through."""
        if words[0].startswith("--from="):
            source = self.image(words[0].removeprefix("--from=")).root / words[1][1:]
            target = image.root / words[2][1:]
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.is_dir():
                target.rmdir()  # what WORKDIR made
            copied(source, target)
            return
        assert words == [".", "."], words
        target = image.root / image.folder[1:]
        check_out(target)
        for path in ignored(target, (self.context / ".dockerignore").read_text().split()):
            if path.is_dir():
                shutil.rmtree(path)
            elif path.exists():
                path.unlink()


def ignored(folder: Path, patterns: list[str]) -> Iterator[Path]:
    """Yields the files and folders that these patterns leave out."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        for pattern in patterns:
            anywhere = pattern.startswith("**/")
            if fnmatch.fnmatchcase(path.name if anywhere else name, pattern.removeprefix("**/")):
                yield path
