"""The pages of dashboards: the list, one dashboard, its editor, the editor of a panel, settings, and the import.

A change is a form that names the version it started from. Others' changes since then are kept; a conflict is said
beside the form, and those of a panel and of the JSON keep their input.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import orjson
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

from frontend.dashboards import drawing, stars, storage
from frontend.dashboards.catalogue import AppCatalogue
from frontend.dashboards.document import CALCULATIONS, KINDS, UNITS, Document, PanelSpec, check, from_dict, parse
from frontend.dashboards.grafana import importing
from frontend.dashboards.models import Dashboard
from frontend.dashboards.ready import offers
from frontend.dashboards.variables import NoCatalogue, settle
from frontend.pages.base import AppPage, clock
from frontend.queries import query_session
from spm.accounts.models import App
from spm.accounts.organisations.rights import Right
from spm.errors import LimitExceeded, Refused

VERSIONS_SHOWN = 30
_PREFIX = "var-"  # of variables in an address, as in Grafana's


class DashboardPage(AppPage):
    """A page of one dashboard; 404 for one of another app."""

    def dashboard(self) -> Dashboard:
        """Return the dashboard that the address names."""
        dashboard = Dashboard.objects.filter(app=self.app(), uid=self.kwargs["uid"]).first()
        if dashboard is None:
            raise Http404("There is no such dashboard.")
        return dashboard

    def author(self, note: str = "") -> storage.Author:
        """Return who saves."""
        return storage.Author(self.person, clock.now_ms(), note)

    def drawn(self, app: App, document: Document, *, once: bool = False) -> dict[str, Any]:
        """Return the variables and panels as the page shows them; ``once``: without copies of repeated ones."""
        given = {name[len(_PREFIX) :]: values for name, values in self.request.GET.lists() if name.startswith(_PREFIX)}
        asks = any(each.kind == "query" for each in document.variables)
        with query_session(app, self.request) if asks else nullcontext() as session:
            catalogue = AppCatalogue(session, clock.now_ms()) if session else NoCatalogue()
            variables = settle(document.variables, given, catalogue)
        fields = {f"{_PREFIX}{each.spec.name}" for each in variables if each.is_asked}
        lists = [(name, values) for name, values in self.request.GET.lists() if name not in fields]
        others = [(name, value) for name, values in lists for value in values]
        return {"variables": variables, "panels": drawing.drawn(document, variables, once=once), "others": others}

    def refused(self, error: Refused | LimitExceeded, **context: Any) -> HttpResponse:
        """Show the page once more, with what is wrong."""
        status = 409 if isinstance(error, storage.Conflict) else 400
        return self.render_to_response(self.get_context_data(refusal=str(error), **context), status=status)


class Dashboards(AppPage):
    """The list, starred ones first, with filters, and a form for a new one."""

    template_name = "frontend/dashboards/list.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the dashboards whose titles hold the text of the filter, and that have its tag."""
        context, given = super().get_context_data(**kwargs), self.request.GET
        text, tag = (given.get(name, "").replace("\0", "").strip() for name in ("q", "tag"))
        dashboards = stars.listed(context["app"], self.person)
        shown = [each for each in dashboards if text.casefold() in each.title.casefold() and tag in ("", *each.tags)]
        return {
            **context,
            "dashboards": shown,
            "count": len(dashboards),
            "tags": sorted({each for dashboard in dashboards for each in dashboard.tags}),
            "text": text,
            "tag": tag,
            "ready": offers.offered(context["app"].pk, context["now_ms"]),
        }

    def post(self, request: HttpRequest, app_id: int) -> HttpResponse:
        """Create a dashboard with one panel, and lead to that; or a copy of the ready one that ``ready`` names."""
        self.right = Right.EDIT_DASHBOARDS
        app, title, key = self.app(), request.POST.get("title", "").strip(), request.POST.get("ready", "")
        try:
            if key:
                dashboard = storage.create(
                    app, offers.find(key).document(), storage.Author(self.person, clock.now_ms(), "a ready dashboard")
                )
                return redirect("frontend:dashboard", app_id, dashboard.uid)
            document = check({"title": title, "panels": [{"number": 1, "w": 24, "title": "New panel"}]})
            dashboard = storage.create(app, document, storage.Author(self.person, clock.now_ms()))
        except (Refused, LimitExceeded) as error:
            return self.render_to_response(self.get_context_data(refusal=str(error)), status=400)
        return redirect("frontend:dashboard_panel", app_id, dashboard.uid, 1)


class Marking(DashboardPage):
    """Puts a person's star on a dashboard, or takes it away."""

    http_method_names = ("post",)

    def post(self, request: HttpRequest, app_id: int, uid: str) -> HttpResponse:
        """Star it, or with ``act=unstar`` no longer; then show the list again."""
        stars.set_star(self.dashboard(), self.person, starred=request.POST.get("act") != "unstar")
        return redirect("frontend:dashboards", app_id)


class View(DashboardPage):
    """One dashboard."""

    template_name = "frontend/dashboards/view.html"
    editing = False

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the panels, with the variables that the address gives."""
        context, dashboard = super().get_context_data(**kwargs), self.dashboard()
        document = storage.document_of(dashboard)
        shown = self.drawn(context["app"], document, once=self.editing)
        following = None if self.editing else stars.after(dashboard, stars.listed(context["app"], self.person))
        about = {"dashboard": dashboard, "document": document, "editing": self.editing, "following": following}
        return {**context, **about, **shown}


class Edit(View):
    """The same grid, whose panels can be moved, sized, added, copied and removed."""

    right = Right.EDIT_DASHBOARDS
    editing = True  # copies of repeated panels cannot be moved

    def post(self, request: HttpRequest, app_id: int, uid: str) -> HttpResponse:
        """Save the places of panels; ``act=add`` adds one more, and leads to its editor."""
        dashboard, is_add = self.dashboard(), request.POST.get("act") == "add"
        try:
            base = base_of(request)
            changed = started_from(dashboard, base)
            if not is_add or "layout" in request.POST:  # the page that shows a dashboard adds panels, and moves none
                changed = _arranged(changed, request.POST.get("layout", ""))
            panel = PanelSpec(changed.next_number, title="New panel", y=changed.bottom)
            note = request.POST.get("note", "") or ("a panel added" if is_add else "")
            storage.save(dashboard, _with(changed, panel) if is_add else changed, self.author(note), base=base)
        except (Refused, LimitExceeded) as error:
            return self.refused(error)
        if is_add:
            return redirect("frontend:dashboard_panel", app_id, uid, panel.number)
        return redirect("frontend:dashboard", app_id, uid)


class Panel(DashboardPage):
    """The editor of a panel: what it asks, and how that is shown; with ``act=preview`` it is drawn and not saved."""

    template_name = "frontend/dashboards/panel.html"
    right = Right.EDIT_DASHBOARDS

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the panel as it is saved, or as the form has it."""
        context, dashboard = super().get_context_data(**kwargs), self.dashboard()
        document = storage.document_of(dashboard)
        spec = kwargs.get("spec") or document.panel(self.kwargs["number"])
        if spec is None:
            raise Http404("There is no such panel.")
        shown = self.drawn(context["app"], replace(document, panels=[spec]), once=True)
        return {
            **context,
            "dashboard": dashboard,
            "document": document,
            "spec": spec,
            **shown,
            "panel": shown["panels"][0],
            "changed": spec != document.panel(self.kwargs["number"]),
            "version": kwargs.get("version", dashboard.version),
            "kinds": KINDS,
            "units": UNITS,
            "calculations": CALCULATIONS,
            "rows": [*spec.queries, *[None] * (2 if spec.queries else 1)],
        }

    def post(self, request: HttpRequest, app_id: int, uid: str, number: int) -> HttpResponse:
        """Preview, save, copy or delete the panel."""
        dashboard, act = self.dashboard(), request.POST.get("act", "save")
        document = storage.document_of(dashboard)
        old = document.panel(number)
        if old is None:
            raise Http404("There is no such panel.")
        spec, base = old, dashboard.version
        try:
            spec, base = _panel_of(old, request), base_of(request)
            if act == "preview":
                return self.render_to_response(self.get_context_data(spec=spec, version=base))
            self._save(dashboard, started_from(dashboard, base), spec, act, base)
        except (Refused, LimitExceeded) as error:
            return self.refused(error, spec=spec, version=base)  # so saving again overwrites nobody's change
        return redirect("frontend:dashboard", app_id, uid)

    def _save(self, dashboard: Dashboard, document: Document, spec: PanelSpec, act: str, base: int) -> None:
        name = f"“{spec.title}”" if spec.title else f"panel {spec.number}"
        if act == "delete":
            rest = [each for each in document.panels if each.number != spec.number]
            storage.save(dashboard, replace(document, panels=rest), self.author(f"{name} deleted"), base=base)
            messages.success(self.request, f"{name} is deleted. Versions, under Settings, bring it back.")
        elif act == "copy":
            copy = replace(spec, number=document.next_number, y=document.bottom)
            storage.save(dashboard, _with(document, copy), self.author(f"{name} copied"), base=base)
        else:
            storage.save(dashboard, _with(document, spec), self.author(f"{name} changed"), base=base)


class Settings(DashboardPage):
    """The document as JSON, the versions, and the end of a dashboard."""

    template_name = "frontend/dashboards/settings.html"
    right = Right.EDIT_DASHBOARDS

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the document, or what was typed, and the newest versions."""
        context, dashboard = super().get_context_data(**kwargs), self.dashboard()
        document = storage.document_of(dashboard)
        text = kwargs.get("text") or _written(document)
        versions = dashboard.versions.defer("document")[:VERSIONS_SHOWN]
        version = kwargs.get("version", dashboard.version)
        about = {"document": document, "tags": ", ".join(document.tags)}
        return {**context, **about, "dashboard": dashboard, "text": text, "version": version, "versions": versions}

    def post(self, request: HttpRequest, app_id: int, uid: str) -> HttpResponse:
        """Save the JSON, restore a version, or delete the dashboard."""
        dashboard, act, text = self.dashboard(), request.POST.get("act", "save"), request.POST.get("document", "")
        try:
            if act == "delete":
                _check_typed(request, dashboard)
                storage.delete(dashboard, self.author())
                messages.success(request, f"“{dashboard.title}” is deleted.")
                return redirect("frontend:dashboards", app_id)
            if act == "about":
                storage.save(
                    dashboard, _about(request, dashboard), self.author("title or tags changed"), base=base_of(request)
                )
            elif act == "restore":
                storage.restore(dashboard, _number(request, "number"), self.author())
            else:
                storage.save(dashboard, parse(text), self.author(request.POST.get("note", "")), base=base_of(request))
        except (Refused, LimitExceeded) as error:
            form = {"text": text, "version": request.POST.get("version", "")} if act == "save" else {}
            return self.refused(error, **form)  # so saving again overwrites nobody's change
        return redirect("frontend:dashboard", app_id, uid)


class Download(DashboardPage):
    """The document as a file."""

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Answer with JSON."""
        dashboard = self.dashboard()
        answer = HttpResponse(_written(storage.document_of(dashboard)), content_type="application/json")
        answer["Content-Disposition"] = f'attachment; filename="dashboard-{dashboard.uid}.json"'
        return answer


class Import(AppPage):
    """Takes a file of Grafana's or of ours: first a report of every panel, then one save."""

    template_name = "frontend/dashboards/import.html"
    right = Right.EDIT_DASHBOARDS

    def post(self, request: HttpRequest, app_id: int) -> HttpResponse:
        """Report, or save what was reported; a document of ours is reported as it is."""
        app, text = self.app(), request.POST.get("document", "")
        try:
            if request.POST.get("act") == "save":
                dashboard = storage.create(app, parse(text), storage.Author(self.person, clock.now_ms(), "imported"))
                return redirect("frontend:dashboard", app_id, dashboard.uid)
            imported = importing.read(text)
        except (Refused, LimitExceeded) as error:
            return self.render_to_response(self.get_context_data(refusal=str(error)), status=400)
        context = self.get_context_data(imported=imported, text=_written(imported.document))
        return self.render_to_response(context)


def _about(request: HttpRequest, dashboard: Dashboard) -> Document:
    """Return the document with the title, description and tags of a form."""
    tags = dict.fromkeys(each.strip() for each in request.POST.get("tags", "").split(",") if each.strip())
    texts = {name: request.POST.get(name, "").strip() for name in ("title", "description")}
    return check({**started_from(dashboard, base_of(request)).as_dict(), **texts, "tags": list(tags)})


def _written(document: Document) -> str:
    return orjson.dumps(document.as_dict(), option=orjson.OPT_INDENT_2).decode()


def base_of(request: HttpRequest) -> int:
    return _number(request, "version")


def _number(request: HttpRequest, name: str) -> int:
    text = request.POST.get(name, "")
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise Refused(f"the form has no {name}", got=text or "nothing", wanted="a number")
    return int(text)


def _with(document: Document, panel: PanelSpec) -> Document:
    """Put a panel into a document: in place of the one with its number, else at the end."""
    panels = [panel if each.number == panel.number else each for each in document.panels]
    is_new = document.panel(panel.number) is None
    return check(replace(document, panels=[*panels, panel] if is_new else panels).as_dict())


def started_from(dashboard: Dashboard, base: int) -> Document:
    """Return the document of the version that an editor began with, or the newest if that is gone."""
    before = dashboard.versions.filter(number=base).first()
    return storage.document_of(dashboard) if before is None else from_dict(before.document)


def _check_typed(request: HttpRequest, dashboard: Dashboard) -> None:
    if request.POST.get("confirm", "").strip() != dashboard.title:
        raise Refused("Nothing was deleted: the title was not typed.", wanted=dashboard.title)


def _arranged(document: Document, text: str) -> Document:
    """Give panels the places of an editor: a list of {number, x, y, w, h}; panels that it does not name are gone."""
    try:
        layout = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Refused("the places of the panels are no JSON", got=str(error)) from error
    if not isinstance(layout, list) or not all(isinstance(each, Mapping) for each in layout):
        raise Refused("the places of the panels are no list of objects")
    value = document.as_dict()
    panels = {each["number"]: each for each in value["panels"]}
    wanted = []
    for each in layout:
        origin = each.get("copy_of", each.get("number"))
        model = panels.get(origin) if isinstance(origin, int) else None
        if model is not None:
            wanted.append({**model, **{name: each.get(name) for name in ("number", "x", "y", "w", "h")}})
    return check({**value, "panels": wanted})


def _panel_of(old: PanelSpec, request: HttpRequest) -> PanelSpec:
    """Read the form of a panel; whatever it does not have stays as it was."""
    form = request.POST
    names = ("kind", "title", "description", "unit", "calculation", "text", "repeat")
    given: dict[str, Any] = {name: form[name].replace("\r\n", "\n") for name in names if name in form}
    if old.kind == "row" and given:
        given["folded"] = "folded" in form
    exprs, legends = form.getlist("expr"), form.getlist("legend")
    queries = [
        {"expr": expr.replace("\r\n", "\n").strip(), "legend": legend}
        for expr, legend in zip(exprs, [*legends, *[""] * len(exprs)], strict=False)
        if expr.strip()
    ]
    value = Document("panel", panels=[old]).as_dict()
    panel = value["panels"][0] | given | ({"queries": queries} if "expr" in form else {})
    return check({**value, "panels": [panel]}).panels[0]
