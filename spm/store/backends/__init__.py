"""Opens a store: ``open_backend(url)``.

URLs are ``memory://``, ``lmdb:///absolute/folder`` and ``hbase://host:port/table_prefix``. The module that imports the
foreign library is loaded by name, so that no library is needed for a store that is not used.
"""

import importlib
from urllib.parse import urlsplit

from spm.errors import Refused
from spm.store.backends.base import Backend

_MODULES = {"memory": "memory", "lmdb": "lmdb", "hbase": "hbase"}


def open_backend(url: str) -> Backend:
    """Open the store at ``url``; raise ``Refused`` for an unknown scheme."""
    scheme = urlsplit(url).scheme
    if scheme not in _MODULES:
        raise Refused("unknown store", got=url, wanted=" or ".join(f"{s}://" for s in _MODULES))
    module = importlib.import_module(f"spm.store.backends.{_MODULES[scheme]}")
    backend: Backend = module.open_url(url)
    return backend
