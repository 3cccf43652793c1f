"""Names that resemble a wrong one."""

from collections.abc import Sequence

import pytest

from frontend.presenters.names import names_like


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("cpu_usage_totl", ["cpu_usage_total"]),
        ("web1", ["web-1", "web-2"]),
        ("zzz", []),
        ("", []),
    ],
)
def test_a_wrong_name_has_those_that_were_meant(value: str, names: list[str]) -> None:
    assert names_like(value, ["cpu_usage_total", "mem_used", "web-1", "web-2"]) == names


def test_of_very_many_names_only_those_beside_it_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    names = sorted(f"service_{number % 97}_requests_{number}" for number in range(30_000))
    compared: list[int] = []

    def count(value: str, among: Sequence[str], **_: object) -> list[str]:
        compared.append(len(among))
        return [name for name in among if name == value]

    monkeypatch.setattr("frontend.presenters.names.get_close_matches", count)
    for name in (names[0], names[17_000], names[-1]):
        assert names_like(name, names) == [name]
    assert max(compared) < 1_000  # all of them would take four seconds
