"""The form of a dashboard's variables: add, edit, order, delete, and see which values each would offer.

Every button but *Save* shows the form once more with the change, so that all is saved as one version. Enter by
``Variables``.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from frontend.dashboards import storage
from frontend.dashboards.document import VARIABLE_KINDS, Document, VariableSpec, check
from frontend.dashboards.limits import VARIABLES_MAX
from frontend.dashboards.variables import Variable, names_in
from frontend.pages.dashboards.documents import DashboardPage, base_of, started_from
from spm.accounts.organisations.rights import Right
from spm.errors import LimitExceeded, Refused

_TEXTS = ("name", "kind", "label", "query", "regex", "all_value")
_FLAGS = ("multi", "all", "hidden")
_STEPS = {"up": -1, "down": 1}
_COMMA = re.compile(r"(?<!\\),")


@dataclass(frozen=True, slots=True)
class Field:
    """A variable as the form has it: ``settled`` has its values, ``uses`` the panels that refer to it."""

    number: int
    spec: Mapping[str, Any]
    values: str
    uses: int
    settled: Variable | None = None
    focus: str = ""


class Variables(DashboardPage):
    """The form."""

    template_name = "frontend/dashboards/variables_form.html"
    right = Right.EDIT_DASHBOARDS

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the variables as they are saved, or as the form has them, with the values of each."""
        context, dashboard = super().get_context_data(**kwargs), self.dashboard()
        document = storage.document_of(dashboard)
        specs = kwargs.get("specs", [asdict(each) for each in document.variables])
        refusal, settled = kwargs.get("refusal", ""), dict[str, Variable]()
        try:
            named = _checked([each for each in specs if each["name"]])
            variables = self.drawn(context["app"], Document("values", variables=named))["variables"]
            settled = {each.spec.name: each for each in variables}
        except (Refused, LimitExceeded) as error:
            refusal = refusal or str(error)
        number, focus = kwargs.get("focus", (-1, ""))
        return {
            **context,
            "dashboard": dashboard,
            "version": kwargs.get("version", dashboard.version),
            "refusal": refusal,
            "changed": [*map(_plain, specs)] != [_plain(asdict(each)) for each in document.variables],
            "kinds": VARIABLE_KINDS,
            "is_full": len(specs) >= VARIABLES_MAX,
            "fields": [
                Field(
                    at,
                    spec,
                    ", ".join(each.replace(",", "\\,") for each in spec["values"]),
                    _uses(document, spec["name"]),
                    settled.get(spec["name"]),
                    focus if at == number else "",
                )
                for at, spec in enumerate(specs)
            ],
        }

    def post(self, request: HttpRequest, app_id: int, uid: str) -> HttpResponse:
        """Save the variables, or show the form with one more, without one, or in another order."""
        dashboard, (act, _, at) = self.dashboard(), request.POST.get("act", "save").partition("-")
        version = request.POST.get("version", "")
        specs: Sequence[Mapping[str, Any]] = _given(request)
        if act != "save":
            specs, focus = _changed(specs, act, int(at) if at.isascii() and at.isdecimal() else -1)
            return self.render_to_response(self.get_context_data(specs=specs, version=version, focus=focus))
        try:
            base = base_of(request)
            changed = replace(started_from(dashboard, base), variables=_checked(specs))
            storage.save(dashboard, changed, self.author("variables changed"), base=base)
        except (Refused, LimitExceeded) as error:
            return self.refused(error, specs=specs, version=version)
        return redirect("frontend:dashboard", app_id, uid)


def _given(request: HttpRequest) -> list[dict[str, Any]]:
    """Read the variables of the form in their order."""
    form, specs = request.POST, list[dict[str, Any]]()
    for at in range(VARIABLES_MAX + 1):
        if f"{at}-name" not in form:
            break
        texts = {name: form.get(f"{at}-{name}", "").strip() for name in _TEXTS}
        values = [each.replace("\\,", ",").strip() for each in _COMMA.split(form.get(f"{at}-values", ""))]
        flags = {name: f"{at}-{name}" in form for name in _FLAGS}
        specs.append({**asdict(VariableSpec("")), **texts, **flags, "values": list(filter(None, values))})
    return specs


def _changed(specs: Sequence[Mapping[str, Any]], act: str, at: int) -> tuple[list[Mapping[str, Any]], tuple[int, str]]:
    """Return the variables after a button, and where the focus goes. Pure."""
    changed, step = list(specs), _STEPS.get(act, 0)
    if act == "add" and len(changed) < VARIABLES_MAX:
        return [*changed, asdict(VariableSpec(""))], (len(changed), "name")
    if act == "delete" and 0 <= at < len(changed):
        del changed[at]
        return changed, (min(at, len(changed) - 1), "name")
    if step and 0 <= at < len(changed) and 0 <= at + step < len(changed):
        changed[at], changed[at + step] = changed[at + step], changed[at]
        return changed, (at + step, act)
    return changed, (-1, "")


def _plain(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {**spec, "values": list(spec["values"])}


def _checked(specs: Sequence[Mapping[str, Any]]) -> Sequence[VariableSpec]:
    return check({"title": "variables", "variables": [dict(each) for each in specs]}).variables


def _uses(document: Document, name: str) -> int:
    """Count the panels that refer to a variable."""
    texts = (
        [each.title, each.text, *(query.expr + query.legend for query in each.queries)] for each in document.panels
    )
    repeats = (each.repeat for each in document.panels)
    return sum(
        name == repeat or any(name in names_in(text) for text in of_panel)
        for of_panel, repeat in zip(texts, repeats, strict=True)
    )
