"""Static files under names with a hash of their content, also where one script imports another.

So a browser keeps all of them for good: without this, it asks for each imported script again a minute later.
"""

from whitenoise.storage import CompressedManifestStaticFilesStorage


class HashedStaticFiles(CompressedManifestStaticFilesStorage):  # type: ignore[misc]  # the library has no types
    """Hashed and compressed files; ``import`` of scripts names the hashed ones."""

    support_js_module_import_aggregation = True
