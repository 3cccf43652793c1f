"""Small values are compared and found as frozen ones are, however they are made."""

import dataclasses

from spm.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Value:
    """As a query makes them."""

    name: str
    more: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    """The same, by the library alone."""

    name: str
    more: tuple[int, ...] = ()


def test_values_are_equal_and_found_by_their_fields() -> None:
    one, same, other = Value("a", (1,)), Value("a", (1,)), Value("a")
    assert (one == same, one == other, {one: 1}[same]) == (True, False, 1)
    assert hash(one) == hash(Frozen("a", (1,)))
    assert repr(one) == repr(Frozen("a", (1,))).replace("Frozen", "Value")
    assert dataclasses.replace(one, more=()) == other
    assert not hasattr(one, "__dict__")


def test_what_is_not_frozen_has_no_hash() -> None:
    @dataclass(slots=True)
    class Changing:
        name: str

    assert Changing.__hash__ is None
