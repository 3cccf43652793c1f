"""The pages of help: the list of all operations of the interfaces, and one page for each.

They are drawn from the OpenAPI schema, which ``/api/v1/schema`` answers to programs. Commands get the address by which
the page was asked for; the numbers of the reader's app and organisation stand above them.
"""

from functools import cache
from itertools import groupby
from typing import Any, cast

from django.conf import settings
from django.contrib.auth.mixins import LoginRequiredMixin
from django.contrib.auth.models import User
from django.http import Http404
from django.views.generic import TemplateView
from drf_spectacular.generators import SchemaGenerator

from frontend.help.operations import Operation, matching, operations_of
from spm.accounts.access import apps_of

_NEEDS = {
    "TOKEN": "a token of the app",
    "APP": "the number of an app",
    "ORGANISATION": "the number of an organisation",
    "SESSION": "the cookie sessionid of a browser that is logged in",
    "CSRF": "its cookie csrftoken",
}


@cache
def site_operations() -> list[Operation]:
    """Return all operations of this site; the schema is made once in a process."""
    generator: Any = SchemaGenerator()  # type: ignore[no-untyped-call]  # the library has no types
    return operations_of(generator.get_schema(request=None, public=True))


class Api(LoginRequiredMixin, TemplateView):
    """Lists the operations by what they are about; ``q`` leaves those in which its words stand."""

    template_name = "frontend/help/api.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the groups of operations."""
        words = self.request.GET.get("q", "")
        operations = matching(site_operations(), words)
        groups = [(title, list(rows)) for title, rows in groupby(operations, key=lambda each: each.group)]
        return super().get_context_data(words=words, groups=groups, count=len(operations), **kwargs)


class ApiOperation(LoginRequiredMixin, TemplateView):
    """Shows one operation: its command first, then parameters, body, answers and failures."""

    template_name = "frontend/help/operation.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the operation, and what its command needs."""
        name = self.kwargs["name"]
        operation = next((each for each in site_operations() if each.name == name), None)
        if operation is None:
            raise Http404("There is no such operation.")
        base = self.request.build_absolute_uri("/").rstrip("/")
        siblings = [each for each in site_operations() if each.group == operation.group]
        return super().get_context_data(
            operation=operation,
            command=operation.command.replace(settings.SPM_BASE_URL, base),
            exports=self._exports(operation),
            siblings=siblings,
            **kwargs,
        )

    def _exports(self, operation: Operation) -> list[tuple[str, str, str]]:
        """For each variable of the command: its name, the reader's own value if there is one, and what it is."""
        app = next(iter(apps_of(cast(User, self.request.user))), None)
        own = {"APP": str(app.pk), "ORGANISATION": str(app.organisation_id)} if app else {}
        texts = {
            name: _NEEDS.get(name, f"a {name.lower().replace('_', ' ')}, from a list") for name in operation.variables
        }
        return [(name, own.get(name, "…"), text) for name, text in texts.items()]
