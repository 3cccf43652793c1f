"""``GET /api/v1/search``: what the command palette finds: pages, hosts, metrics, rules and other apps, and help."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.urls import reverse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from alerts.models import Rule
from frontend.api.base import FailureSerializer, Operation
from frontend.help.document_pages import library
from frontend.pages import registry
from frontend.presenters import names
from frontend.presenters.hosts.table import is_host
from spm.accounts.access import apps_of
from spm.accounts.models import App, Source
from spm.accounts.organisations.rights import Right
from spm.clock import SystemClock
from spm.errors import SpmError

FOUND_MAX = 10  # of each kind
_clock = SystemClock()
Item = dict[str, str]


class SearchQuery(serializers.Serializer[dict[str, Any]]):
    """What to find."""

    app = serializers.IntegerField(required=False)
    q = serializers.CharField(required=False, allow_blank=True, max_length=200, help_text="A part of the name")


class FoundSerializer(serializers.Serializer[dict[str, Any]]):
    """One thing, and where it is."""

    text = serializers.CharField()
    hint = serializers.CharField(required=False)
    href = serializers.CharField()


class FoundGroupSerializer(serializers.Serializer[dict[str, Any]]):
    """Things of one kind."""

    kind = serializers.CharField()
    items = FoundSerializer(many=True)


class SearchSerializer(serializers.Serializer[dict[str, Any]]):
    """What was found, by kind."""

    groups = FoundGroupSerializer(many=True)


class Search(Operation):
    """What an app has of a name."""

    @extend_schema(
        operation_id="search",
        parameters=[SearchQuery],
        responses={200: SearchSerializer, **dict.fromkeys((400, 401, 404), FailureSerializer)},
    )
    def get(self, request: Request) -> Response:
        """At most ten of each kind; of an empty text, the pages."""
        query = self.validated_query(SearchQuery)
        app, text = self.app(query.get("app")), query.get("q", "").strip()
        person = request.user if isinstance(request.user, User) else None
        groups = [("Pages", _pages(app, text, lambda right: self.may(app, right)))]
        if text:
            groups += [
                ("Hosts", _hosts(app, text)),
                ("Metrics", _metrics(app, text)),
                ("Rules", _rules(app, text)),
                ("Apps", _apps(person, app, text)),
                ("Help", _best(_sections_of_help(), text)),
            ]
        return Response({"groups": [{"kind": kind, "items": items} for kind, items in groups if items]})


def _pages(app: App, text: str, may: Callable[[Right], bool]) -> list[Item]:
    """List the pages that the caller may see, each under its own name and that of its section."""
    sections = {page.name: page.title for page in registry.PAGES}
    items = []
    for page in registry.PAGES:
        is_shown = (page.title or page.tab) and (app.organisation.internal or not page.internal)
        right = page.view.right if page.view else Right.SEE_APP
        if is_shown and (right is Right.SEE_APP or may(right)):
            hint = sections.get(page.section, "")
            items.append({"text": page.tab or page.title, "hint": hint, "href": registry.href(page, app)})
    items.append({"text": "Help", "href": reverse("frontend:help")})
    return _best(items, text)


def _hosts(app: App, text: str) -> list[Item]:
    known = Source.objects.filter(app=app, name__icontains=text).values_list("name", flat=True)[: 10 * FOUND_MAX]
    matching = {name for name in known if is_host(name)}
    if len(matching) < FOUND_MAX:
        with suppress(SpmError):  # the sources are enough while the store is away
            matching.update(names.values("host", app.pk, _clock.now_ms(), text, FOUND_MAX))
    return _best([{"text": name, "href": reverse("frontend:host", args=[app.pk, name])} for name in matching], text)


def _metrics(app: App, text: str) -> list[Item]:
    try:
        matching = names.metrics(app.pk, _clock.now_ms(), text, FOUND_MAX)
    except SpmError:
        return []
    address = reverse("frontend:chart", args=[app.pk])
    return [{"text": name, "href": f"{address}?{urlencode({'expr': name})}"} for name in matching]


def _rules(app: App, text: str) -> list[Item]:
    rules = Rule.objects.filter(app=app, deleted_ms=None, name__icontains=text)[:FOUND_MAX]
    return [{"text": rule.name, "href": reverse("alerts:rule", args=[rule.pk])} for rule in rules]


def _apps(person: User | None, app: App, text: str) -> list[Item]:
    others: Iterable[App] = apps_of(person) if person else ()
    items = [
        {"text": each.name, "hint": str(each.organisation), "href": reverse("frontend:overview", args=[each.pk])}
        for each in others
        if each.pk != app.pk
    ]
    return _best(items, text)


@cache
def _sections_of_help() -> Sequence[Item]:
    """List the sections of the documents by their headings, once in a process, as the documents are read."""
    return [
        {
            "text": section.title,
            "hint": document.title,
            "href": f"{reverse('frontend:help_document', args=[document.name])}#{section.anchor}",
        }
        for document in library().documents.values()
        for section in document.sections
    ]


def _best(items: Sequence[Item], text: str) -> list[Item]:
    """Choose the items whose text contains another one, those that begin with it first."""
    folded = text.casefold()
    matching = [item for item in items if folded in item["text"].casefold()]
    if folded:
        matching.sort(key=lambda item: (not item["text"].casefold().startswith(folded), item["text"]))
    return matching[:FOUND_MAX] if folded else matching
