"""The first page of help, and a page for each document; linked files that are no documents, as plain text.

Everybody who is logged in may read them; they are those of the running version, and need no other host.
"""

from functools import cache
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.contrib.auth.mixins import LoginRequiredMixin
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe
from django.views.generic import TemplateView

from frontend.help.documents import Library, read_library, search
from frontend.help.operations import matching
from frontend.help.pages import site_operations
from spm.limits import HELP_HITS_MAX


@cache
def library() -> Library:
    """Return the documents of this version, read once in a process."""
    return read_library(settings.SPM_ROOT)


class Help(LoginRequiredMixin, TemplateView):
    """The documents by their kinds; with ``q``, the sections and operations in which its words stand."""

    template_name = "frontend/help/home.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the kinds, and what a search hits."""
        words = self.request.GET.get("q", "").strip()
        operations = matching(site_operations(), words) if words else []
        return super().get_context_data(
            words=words,
            kinds=library().kinds,
            hits=search(library(), words, HELP_HITS_MAX),
            operations=operations[:HELP_HITS_MAX],
            **kwargs,
        )


class DocumentPage(LoginRequiredMixin, TemplateView):
    """One document, its contents, and the others of all kinds beside it."""

    template_name = "frontend/help/document.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the document; 404 if there is none of this name."""
        document = library().documents.get(self.kwargs["name"])
        if document is None:
            raise Http404("There is no such document.")
        return super().get_context_data(document=document, kinds=library().kinds, **kwargs)


@require_safe
@login_required
def linked_file(request: HttpRequest, name: str) -> HttpResponse:
    """Answer a file that a document links to, as text; no other file is read."""
    path = library().files.get(name)
    if path is None:
        raise Http404("No document links to such a file.")
    return HttpResponse(path.read_bytes(), content_type="text/plain; charset=utf-8")
