"""The addresses of export and import, beside those of the REST interface."""

from django.urls import URLPattern, URLResolver, path

from frontend.transfer import export, taking

app_name = "transfer"
urlpatterns: list[URLPattern | URLResolver] = [
    path("export", export.export, name="export"),
    path("import", taking.take, name="import"),
]
