"""Values that are frozen to whoever reads and checks the code, and plain to the interpreter.

A query makes some fifty small values. A frozen dataclass sets each of its fields through ``object.__setattr__``, which
takes five times as long as an assignment and touches as much memory again: where a millisecond is asked for, that is
noticed. mypy sees ``dataclasses.dataclass`` here, and refuses every assignment to what says ``frozen=True``; hashes and
comparisons are the same. Import ``dataclass`` from here for what is made in every query, and nowhere else.
"""

import dataclasses
from typing import TYPE_CHECKING

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, frozen=False, slots=False):
        """As ``dataclasses.dataclass``, but that nothing guards the fields of a frozen one."""
        return dataclasses.dataclass(unsafe_hash=frozen, slots=slots)
