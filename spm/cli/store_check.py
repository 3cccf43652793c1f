"""Checks at the start that the store is the one that belongs to the database, whole, and not an empty or foreign one.

Both carry one identity, drawn at their first start. A store that was emptied, moved away or restored without its
database would else be taken for a new one, and give numbers of apps and processes a second time. The database gets the
identity first and notes when the store has it, so that a start that was killed in between is completed by the next.
Enter by ``check_store``.
"""

from spm.accounts.models import StoreBinding
from spm.clock import random_bytes
from spm.errors import SpmError, StoreDamaged, StoreUnavailable
from spm.store.backends.base import Backend
from spm.store.check_and_put import COLUMN

IDENTITY = b"identity"  # its key in `config`
_IDENTITY_BYTES = 16
_REMEDY = "Put the right one back, or start once with --accept-store to go on with this one."


class StoreMismatch(SpmError):
    """Store and database do not belong together; the text is for the person at the terminal."""


def check_store(store: Backend, name: str, *, accept: bool = False) -> None:
    """Raise ``StoreMismatch`` if the store ``name`` is not the database's; with ``accept`` make it so.

    A store that does not answer is checked by the next start; one that is damaged raises ``StoreDamaged``.
    """
    binding, _ = StoreBinding.objects.get_or_create(pk=1, defaults={"identity": random_bytes(_IDENTITY_BYTES)})
    own = bytes(binding.identity)
    try:
        present = _identity(store)
        if present != own and accept:
            own = present or random_bytes(_IDENTITY_BYTES)  # a new one: the former store may come back
            StoreBinding.objects.filter(pk=1).update(identity=own, is_confirmed=False)
        elif present is None and binding.is_confirmed:
            raise StoreMismatch(f"The store {name} is empty, but the database knows one that is not. {_REMEDY}")
        if present is None:
            store.check_and_put("config", IDENTITY, COLUMN, None, own)
            present = _identity(store)
    except StoreDamaged:
        raise
    except StoreUnavailable:
        return
    if present != own:
        raise StoreMismatch(f"The store {name} belongs to another database than this one. {_REMEDY}")
    StoreBinding.objects.filter(pk=1, is_confirmed=False).update(is_confirmed=True)


def _identity(store: Backend) -> bytes | None:
    [row] = store.get("config", [IDENTITY], [COLUMN])
    return row[COLUMN] if row else None
