"""The alerting pages: rules, one rule with its history, its form with a live check, and the messages.

Each view checks what the person may do, makes one call, and renders. Rules and messages of other people's apps answer
404, as if they did not exist.
"""

from typing import Any, cast

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from alerts import rulebook
from alerts.expressions import query_engine, with_admission
from alerts.models import Outbox, Rule
from alerts.notify import outbox
from alerts.notify.email import chart_path
from alerts.pages import presenters
from alerts.pages.check import check
from alerts.pages.forms import ConditionForm, RuleForm, initial_of
from spm.accounts import access
from spm.accounts.models import App, Role
from spm.clock import SystemClock
from spm.errors import LimitExceeded

_clock = SystemClock()


@login_required
@require_GET
def rule_list(request: HttpRequest) -> HttpResponse:
    """Show the rules of an app."""
    app = _app(request)
    return _page(request, "rules", app, rows=presenters.rows_of(app), apps=access.apps_of(_person(request)))


@login_required
@require_GET
def rule_page(request: HttpRequest, rule_id: int) -> HttpResponse:
    """Show one rule: the states of its series, and its history."""
    rule = _rule(request, rule_id, Role.VIEWER)
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
    app = _app(request, Role.EDITOR)
    prefilled = {name: request.GET[name] for name in ("expr", "name", "threshold") if name in request.GET}
    form = _form(request, app, initial={"receivers": _person(request).email, "for_ms": "1m", **prefilled})
    if form.is_bound and form.is_valid():
        return _save(request, app, form, None)
    return _page(request, "form", app, form=form, heading="New rule")


@login_required
@require_http_methods(["GET", "POST"])
def rule_edit(request: HttpRequest, rule_id: int) -> HttpResponse:
    """Change a rule."""
    rule = _rule(request, rule_id, Role.EDITOR)
    form = _form(request, rule.app, initial=initial_of(rule))
    if form.is_bound and form.is_valid():
        return _save(request, rule.app, form, rule)
    return _page(request, "form", rule.app, form=form, heading=rule.name, rule=rule)


@login_required
@require_POST
def rule_delete(request: HttpRequest, rule_id: int) -> HttpResponse:
    """Delete a rule."""
    rule = _rule(request, rule_id, Role.EDITOR)
    rulebook.delete(rule, by=_person(request), now_ms=_clock.now_ms())
    messages.success(request, f"“{rule.name}” is deleted.")
    return redirect(_list_path(rule.app))


@login_required
@require_GET
def rule_check(request: HttpRequest) -> HttpResponse:
    """Show the present answer of the expression being typed: a part of the form's page."""
    app = _app(request)
    condition = ConditionForm(request.GET).condition()
    querier = with_admission(app.organisation_id, query_engine)
    result = check(app.pk, request.GET.get("expr", ""), condition, at_ms=_clock.now_ms(), querier=querier)
    return _page(request, "parts/check", app, check=result, condition=condition)


@login_required
@require_GET
def message_list(request: HttpRequest) -> HttpResponse:
    """Show the messages of an app, newest first."""
    app = _app(request)
    return _page(request, "messages", app, rows=presenters.message_rows_of(app))


@login_required
@require_GET
def message_page(request: HttpRequest, message_id: int) -> HttpResponse:
    """Show one message."""
    message = _message(request, message_id, Role.VIEWER)
    assert message.app is not None, "BUG: a message without an app on a page of an app"
    return _page(request, "message", message.app, row=presenters.message_row_of(message))


@login_required
@require_POST
def message_retry(request: HttpRequest, message_id: int) -> HttpResponse:
    """Try a dead message again."""
    message = _message(request, message_id, Role.EDITOR)
    outbox.revive(Outbox.objects.filter(pk=message.pk))
    return redirect("alerts:message", message_id)


def _person(request: HttpRequest) -> User:
    return cast(User, request.user)


def _app(request: HttpRequest, role: str = Role.VIEWER) -> App:
    """Return the app that ``app=`` names, else the person's first one."""
    text = request.GET.get("app", "")
    app = access.app_of_person(_person(request), int(text) if text.isascii() and text.isdigit() else None)
    return access.require_app(_person(request), app.pk, role)


def _rule(request: HttpRequest, rule_id: int, role: str) -> Rule:
    rule = get_object_or_404(Rule.objects.select_related("app__organisation"), pk=rule_id, deleted_ms=None)
    access.require_app(_person(request), rule.app_id, role)
    return rule


def _message(request: HttpRequest, message_id: int, role: str) -> Outbox:
    messages = Outbox.objects.exclude(app=None).select_related("app__organisation")
    message = get_object_or_404(messages, pk=message_id)
    assert message.app is not None, "BUG: a message without an app on a page of an app"
    access.require_app(_person(request), message.app.pk, role)
    return message


def _form(request: HttpRequest, app: App, initial: dict[str, Any]) -> RuleForm:
    data = request.POST if request.method == "POST" else None
    querier = with_admission(app.organisation_id, query_engine)
    return RuleForm(data, initial=initial, app=app.pk, querier=querier, at_ms=_clock.now_ms())


def _save(request: HttpRequest, app: App, form: RuleForm, rule: Rule | None) -> HttpResponse:
    person, now_ms, draft = _person(request), _clock.now_ms(), form.draft()
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
    may_edit = access.has_role(_person(request), app, Role.EDITOR)
    return render(request, f"alerts/{name}.html", {"app": app, "may_edit": may_edit, **context})


def _list_path(app: App) -> str:
    return f"/alerts/?app={app.pk}"
