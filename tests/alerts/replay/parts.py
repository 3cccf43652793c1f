"""The month of a thousand rules, in parts that run one by one: which there are, what each has shown, and their sum.

A part is an app with rules and a history of its own; as many rules as are asked for do not fit into one app. The days
that a part has lived, and what it has shown, are kept by pytest's cache until the code changes, so that parts run in
several sessions.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import pytest

RULES = int(os.environ.get("SPM_REPLAY_RULES", "1000"))
DAYS = float(os.environ.get("SPM_REPLAY_DAYS", "30"))
RULES_OF_A_PART = int(os.environ.get("SPM_REPLAY_PART", "500"))
_ROOT = Path(__file__).parents[3]
_JUDGED_BY = ("alerts", "spm/query", "spm/store", "tests/alerts")


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the rules: how many, which is the first, and for how many days they are judged."""

    number: int
    count: int
    first: int
    rules: int
    days: float

    def __str__(self) -> str:
        return f"part-{self.number}-of-{self.count}"


def parts() -> Iterator[Part]:
    """Yield the parts that together are as many rules and days as are asked for."""
    firsts = range(0, RULES, RULES_OF_A_PART)
    for number, first in enumerate(firsts, 1):
        yield Part(number, len(firsts), first, min(RULES_OF_A_PART, RULES - first), DAYS)


def folder_of(config: pytest.Config, part: Part) -> Path:
    """Return where the days of a part are kept that were lived on this code."""
    assert config.cache is not None, "pytest runs without its cache"
    folder = config.cache.mkdir("replay") / f"{part}-{part.rules}-rules-{part.days:g}-days-{_code()}"
    folder.mkdir(exist_ok=True)
    return folder


def keep(config: pytest.Config, part: Part, figures: Mapping[str, float]) -> str:
    """Keep what a part has shown; returns a line with the sum of all parts that ran on this code."""
    cache, code = config.cache, _code()
    assert cache is not None, "pytest runs without its cache"
    cache.set(f"replay/{part}", {"code": code, "rules": part.rules, "days": part.days, **figures})
    shown = {each: cache.get(f"replay/{each}", {}) for each in parts()}
    done = {each: own for each, own in shown.items() if (own.get("code"), own.get("days")) == (code, part.days)}
    names = ["rules", *figures]
    total = {name: sum(own[name] for own in done.values()) for name in names}
    numbers = ", ".join(str(each.number) for each in done)
    return f"sum of parts {numbers} of {part.count}, {part.days:g} days each: {spell(total)}"


def spell(figures: Mapping[str, float]) -> str:
    """Return figures in one line."""
    return ", ".join(f"{value:,.0f} {name}" for name, value in figures.items())


def _code() -> str:
    """Return a name for the code that judges: what another code has shown counts no more."""
    digest = blake2b(digest_size=8)
    for folder in _JUDGED_BY:
        for path in sorted((_ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()
