"""The alerting pages of rules: the list, one rule with its history, and its form with a live check.

Each view checks what the person may do, makes one call, and renders. Rules of other people's apps answer 404, as if
they did not exist.
"""

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from alerts import rulebook
from alerts.expressions import query_engine, with_admission
from alerts.models import Rule
from alerts.notify.email import chart_path
from alerts.pages import presenters
from alerts.pages.check import check
from alerts.pages.forms import ConditionForm, RuleForm, initial_of
from alerts.pages.scope import app_of, person_of
from spm.accounts import access
from spm.accounts.models import App
from spm.accounts.organisations.rights import Right
from spm.clock import SystemClock
from spm.errors import LimitExceeded

_clock = SystemClock()


@login_required
@require_GET
def rule_list(request: HttpRequest) -> HttpResponse:
    """Show the rules of an app."""
    app = app_of(request)
    return _page(request, "rules", app, rows=presenters.rows_of(app))


@login_required
@require_GET
def rule_page(request: HttpRequest, rule_id: int) -> HttpResponse:
    """Show one rule: the states of its series, and its history."""
    rule = _rule(request, rule_id, Right.SEE_APP)
    return _page(
        request,
        "rule",
        rule.app,
        row=presenters.row_of(rule),
        instances=presenters.instances_of(rule),
        events=presenters.events_of(rule),
        chart=chart_path(rule.app_id, rule.expr),
    )


@login_required
@require_http_methods(["GET", "POST"])
def rule_new(request: HttpRequest) -> HttpResponse:
    """Create a rule; the person's own address is the first receiver."""
    app = app_of(request, Right.WRITE_RULES)
    prefilled = {name: request.GET[name] for name in ("expr", "name", "threshold") if name in request.GET}
    form = _form(request, app, initial={"receivers": person_of(request).email, "for_ms": "1m", **prefilled})
    if form.is_bound and form.is_valid():
        return _save(request, app, form, None)
    return _page(request, "form", app, form=form, heading="New rule")


@login_required
@require_http_methods(["GET", "POST"])
def rule_edit(request: HttpRequest, rule_id: int) -> HttpResponse:
    """Change a rule."""
    rule = _rule(request, rule_id, Right.WRITE_RULES)
    form = _form(request, rule.app, initial=initial_of(rule))
    if form.is_bound and form.is_valid():
        return _save(request, rule.app, form, rule)
    return _page(request, "form", rule.app, form=form, heading=rule.name, rule=rule)


@login_required
@require_POST
def rule_delete(request: HttpRequest, rule_id: int) -> HttpResponse:
    """Delete a rule."""
    rule = _rule(request, rule_id, Right.WRITE_RULES)
    rulebook.delete(rule, by=person_of(request), now_ms=_clock.now_ms())
    messages.success(request, f"“{rule.name}” is deleted.")
    return redirect(_list_path(rule.app))


@login_required
@require_GET
def rule_check(request: HttpRequest) -> HttpResponse:
    """Show the present answer of the expression being typed: a part of the form's page."""
    app = app_of(request, Right.TRY_RULE)
    condition = ConditionForm(request.GET).condition()
    querier = with_admission(app.organisation_id, query_engine)
    result = check(app.pk, request.GET.get("expr", ""), condition, at_ms=_clock.now_ms(), querier=querier)
    return _page(request, "parts/check", app, check=result, condition=condition)


def _rule(request: HttpRequest, rule_id: int, right: Right) -> Rule:
    rule = get_object_or_404(Rule.objects.select_related("app__organisation"), pk=rule_id, deleted_ms=None)
    access.require_app(person_of(request), rule.app_id, right)
    return rule


def _form(request: HttpRequest, app: App, initial: dict[str, Any]) -> RuleForm:
    data = request.POST if request.method == "POST" else None
    querier = with_admission(app.organisation_id, query_engine)
    return RuleForm(data, initial=initial, app=app.pk, querier=querier, at_ms=_clock.now_ms())


def _save(request: HttpRequest, app: App, form: RuleForm, rule: Rule | None) -> HttpResponse:
    person, now_ms, draft = person_of(request), _clock.now_ms(), form.draft(rule)
    try:
        if rule is None:
            saved_rule = rulebook.write(app, draft, by=person, now_ms=now_ms)
        else:
            saved_rule = rulebook.change(rule, draft, by=person, now_ms=now_ms)
    except LimitExceeded as refusal:
        form.add_error(None, str(refusal))
        return _page(request, "form", app, form=form, heading="New rule")
    messages.success(request, f"“{saved_rule.name}” is saved.")
    return redirect("alerts:rule", saved_rule.pk)


def _page(request: HttpRequest, name: str, app: App, **context: Any) -> HttpResponse:
    rights = access.rights_in(person_of(request), app)
    return render(request, f"alerts/{name}.html", {"app": app, "rights": rights, **context})


def _list_path(app: App) -> str:
    return f"/alerts/?app={app.pk}"
