"""Middleware that takes queries with a token past the rest: no session, no cookies, no static files, no pages' policy.

A dashboard sends dozens of small queries at once, and what Django does for pages costs more than answering one. Only
calls that show a token go this way; those of a session need what stands behind. The views are the same, so that who
may ask, limits, errors and explanations are. What protects stays, as for pushes (``ingest.lean``).
"""

from functools import partial
from importlib import import_module

from django.core.handlers.exception import convert_exception_to_response
from django.http import HttpRequest, HttpResponse
from django.urls import Resolver404, ResolverMatch, URLPattern

from ingest import lean

PREFIX = "/prometheus/"
_LONGER = frozenset(
    {"api/v1/read", "federate"}
)  # these read and write bodies of their own; speed is not what they need


class Lean(lean.Lean):
    """See the module."""

    def __init__(self, get_response: lean.Answer) -> None:
        super().__init__(get_response)
        self._doors = self._own = _Doors()

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if "HTTP_AUTHORIZATION" not in request.META or not request.path_info.startswith(PREFIX):
            return self._rest(request)
        if not self._own:
            self._own.open()
        return super().__call__(request)


class _Doors(dict[str, tuple[ResolverMatch, lean.Answer]]):
    """Path → how it is known, and its view. Paths with a label's name in them are matched when they are asked for."""

    _named: tuple[URLPattern, ...] = ()

    def open(self) -> None:
        """Look the addresses up: at the first query, so that a server that is not asked for any starts without them."""
        patterns = list(import_module("frontend.prometheus.urls").urlpatterns)
        self._named = tuple(each for each in patterns if "<" in str(each.pattern))
        for pattern in patterns:
            route = str(pattern.pattern)
            if pattern not in self._named and route not in _LONGER:
                self[PREFIX + route] = self._door(pattern.resolve(route))

    def get(self, path: str, _: object = None) -> tuple[ResolverMatch, lean.Answer] | None:  # type: ignore[override]
        """The door of a path, if there is one here."""
        found = super().get(path)
        if found is not None:
            return found
        for pattern in self._named:
            try:
                match = pattern.resolve(path.removeprefix(PREFIX))
            except Resolver404:
                continue
            if match is not None:
                return self._door(match)
        return None

    @staticmethod
    def _door(match: ResolverMatch | None) -> tuple[ResolverMatch, lean.Answer]:
        assert match is not None, "BUG: a pattern that does not match itself"
        view: lean.Answer = convert_exception_to_response(_checked(partial(match.func, **match.kwargs)))  # type: ignore[assignment]
        return match, view


def _checked(view: lean.Answer) -> lean.Answer:
    def answer(request: HttpRequest) -> HttpResponse:
        request.get_host()  # raises for a host that is not ours
        return view(request)

    return answer
