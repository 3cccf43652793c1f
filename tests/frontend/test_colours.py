"""The colours of the pages: text can be read, and lines of a chart can be told apart, also by the colour-blind."""

import re
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest

from spm.settings.environment import BASE_DIR

CSS = BASE_DIR / "frontend" / "static" / "css"
RULES = dict(re.findall(r"(:root:root\S*) \{([^}]*--backdrop:[^}]*)\}", (CSS / "site.css").read_text()))
LIGHT, DARK = (
    dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{3,6})\b", RULES[name]))
    for name in (":root:root", ':root:root[data-theme="dark"]')
)
THEMES = pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])

# How people with protanopia and deuteranopia see linear RGB: Machado, Oliveira and Fernandes (2009), severity 1.
SIGHTS = {
    "all cones": np.eye(3),
    "protanopia": np.array([[0.1526, 1.0526, -0.2052], [0.1149, 0.7863, 0.0988], [-0.0039, -0.0481, 1.0520]]),
    "deuteranopia": np.array([[0.3673, 0.8606, -0.2279], [0.2801, 0.6727, 0.0472], [-0.0118, 0.0430, 0.9689]]),
}
FEATURES = np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]])
LAB = np.array([[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]])
DISTANCE_MIN = 0.06  # in Oklab; the colours before these had 0.01


def linear(colour: str) -> npt.NDArray[np.float64]:
    """The linear RGB of a colour."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    light = np.array([int(digits[at : at + 2], 16) for at in (0, 2, 4)]) / 255
    return np.where(light <= 0.04045, light / 12.92, ((light + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, as WCAG 2.2 has it."""
    dark, bright = sorted(float(linear(each) @ (0.2126, 0.7152, 0.0722)) for each in (one, other))
    return (bright + 0.05) / (dark + 0.05)


def oklab(colour: str, sight: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The Oklab coordinates of a colour as somebody sees it."""
    lab: npt.NDArray[np.float64] = LAB @ np.cbrt(FEATURES @ np.clip(sight @ linear(colour), 0, 1))
    return lab


@THEMES
@pytest.mark.parametrize(
    ("text", "behind", "least"),
    [("ink", "surface", 7.0), ("quiet", "backdrop", 4.5), ("quiet", "grid", 4.5), ("quiet", "surface", 4.5)]
    + [(name, f"{name}-soft", 4.5) for name in ("accent", "good", "warn", "bad", "absent", "broken", "corrected")]
    + [("accent", "surface", 4.5), ("bad", "surface", 4.5), ("warn", "surface", 4.5), ("control", "surface", 3.0)]
    + [(f"s{number}", "surface", 3.0) for number in range(1, 9)],
)
def test_text_borders_and_lines_stand_out(theme: dict[str, str], text: str, behind: str, least: float) -> None:
    assert contrast(theme[text], theme[behind]) >= least


@THEMES
@pytest.mark.parametrize("sight", SIGHTS)
def test_any_two_lines_of_a_chart_look_different(theme: dict[str, str], sight: str) -> None:
    seen = {name: oklab(theme[name], SIGHTS[sight]) for name in (f"s{number}" for number in range(1, 9))}
    distances = {pair: float(np.linalg.norm(seen[pair[0]] - seen[pair[1]])) for pair in combinations(seen, 2)}
    assert min(distances.values()) >= DISTANCE_MIN, min(distances, key=lambda pair: distances[pair])


def test_the_system_and_the_page_choose_the_same_dark_theme() -> None:
    chosen, of_system = (RULES[f":root:root{end}"] for end in ('[data-theme="dark"]', ':not([data-theme="light"])'))
    assert chosen.split() == of_system.split()
