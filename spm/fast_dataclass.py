"""Dataclasses that the type checker treats as frozen and that cost no more than plain ones to make.

A query makes some fifty small values, and each message of an agent a few. A frozen dataclass sets each field through
``object.__setattr__``, which takes five times as long as an assignment and touches twice the memory; in a query of one
millisecond that is measurable. mypy sees ``dataclasses.dataclass`` here and refuses every assignment to a field of a
``frozen=True`` class; hashes and comparisons work as for frozen ones. Import ``dataclass`` from here for values made in
every query or for every message, and nowhere else.
"""

import dataclasses
from typing import TYPE_CHECKING

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, frozen=False, slots=False, order=False):
        """As ``dataclasses.dataclass``, except that assignments to a frozen value are not refused at run time."""
        return dataclasses.dataclass(unsafe_hash=frozen, slots=slots, order=order)
