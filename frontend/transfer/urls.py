"""The URLs of export and import, beside those of the REST interface."""

from django.urls import URLPattern, URLResolver, path

from frontend.transfer import export
from frontend.transfer import import_ as transfer_import

app_name = "transfer"
urlpatterns: list[URLPattern | URLResolver] = [
    path("export", export.export, name="export"),
    path("import", transfer_import.import_file, name="import"),
]
