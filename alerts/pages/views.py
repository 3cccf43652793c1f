"""The watchman's pages: rules, one rule with its history, its form with a live check, and the mails.

Each view finds out what the person may do, makes one call, and renders. Foreign rules and mails do not exist (404).
"""

from typing import Any, cast

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from alerts import rulebook
from alerts.models import Alert, AlertEvent, Outbox, Rule
from alerts.notify import outbox
from alerts.notify.email import chart_path
from alerts.pages import presenters as pages_presenters
from alerts.pages.check import check
from alerts.pages.forms import ConditionForm, RuleForm, initial_of
from alerts.readings import ask_engine, in_turn
from alerts.rules import State
from spm.accounts import access
from spm.accounts.models import App, Role
from spm.clock import SystemClock
from spm.errors import LimitExceeded

_clock = SystemClock()


@login_required
@require_GET
def rule_list(request: HttpRequest) -> HttpResponse:
    """The rules of an app."""
    app = _app(request)
    return _page(request, "rules", app, rows=pages_presenters.rows_of(app), apps=access.apps_of(_person(request)))


@login_required
@require_GET
def rule_page(request: HttpRequest, rule_id: int) -> HttpResponse:
    """One rule: where its series stand, and what happened."""
    rule = _rule(request, rule_id, Role.VIEWER)
    return _page(
        request,
        "rule",
        rule.app,
        row=pages_presenters.row_of(rule),
        alerts=Alert.objects.filter(rule=rule).exclude(state=State.RESOLVED),
        events=AlertEvent.objects.filter(rule=rule)[: pages_presenters.EVENTS_SHOWN],
        chart=chart_path(rule.app_id, rule.expr),
    )


@login_required
@require_http_methods(["GET", "POST"])
def rule_new(request: HttpRequest) -> HttpResponse:
    """A new rule, with the person's own address as receiver."""
    app = _app(request, Role.EDITOR)
    asked = {name: request.GET[name] for name in ("expr", "name", "threshold") if name in request.GET}
    form = _form(request, app, initial={"receivers": _person(request).email, **asked})
    if form.is_bound and form.is_valid():
        return _keep(request, app, form, None)
    return _page(request, "form", app, form=form, heading="New rule")


@login_required
@require_http_methods(["GET", "POST"])
def rule_edit(request: HttpRequest, rule_id: int) -> HttpResponse:
    """An existing rule."""
    rule = _rule(request, rule_id, Role.EDITOR)
    form = _form(request, rule.app, initial=initial_of(rule))
    if form.is_bound and form.is_valid():
        return _keep(request, rule.app, form, rule)
    return _page(request, "form", rule.app, form=form, heading=rule.name, rule=rule)


@login_required
@require_POST
def rule_delete(request: HttpRequest, rule_id: int) -> HttpResponse:
    """The rule watches no more."""
    rule = _rule(request, rule_id, Role.EDITOR)
    rulebook.delete(rule, by=_person(request), now_ms=_clock.now_ms())
    messages.success(request, f"“{rule.name}” is deleted.")
    return redirect(_list_path(rule.app))


@login_required
@require_GET
def rule_check(request: HttpRequest) -> HttpResponse:
    """What the expression being typed says now: a part of the form's page."""
    app = _app(request)
    condition = ConditionForm(request.GET).condition()
    ask = in_turn(app.organisation_id, ask_engine)
    found = check(app.pk, request.GET.get("expr", ""), condition, at_ms=_clock.now_ms(), ask=ask)
    return _page(request, "parts/check", app, check=found, condition=condition)


@login_required
@require_GET
def mail_list(request: HttpRequest) -> HttpResponse:
    """The mails of an app, newest first."""
    app = _app(request)
    return _page(request, "mails", app, mails=pages_presenters.mails_of(app))


@login_required
@require_GET
def mail_page(request: HttpRequest, message_id: int) -> HttpResponse:
    """One mail."""
    message = _message(request, message_id, Role.VIEWER)
    return _page(request, "mail", message.app, mail=pages_presenters.mail_of(message))


@login_required
@require_POST
def mail_retry(request: HttpRequest, message_id: int) -> HttpResponse:
    """A dead mail gets another chance."""
    message = _message(request, message_id, Role.EDITOR)
    outbox.revive(Outbox.objects.filter(pk=message.pk))
    return redirect("alerts:mail", message_id)


def _person(request: HttpRequest) -> User:
    return cast(User, request.user)


def _app(request: HttpRequest, role: str = Role.VIEWER) -> App:
    """The app that ``app=`` names, else the person's first one."""
    text = request.GET.get("app", "")
    app = access.app_of_person(_person(request), int(text) if text.isascii() and text.isdigit() else None)
    return access.require_app(_person(request), app.pk, role)


def _rule(request: HttpRequest, rule_id: int, role: str) -> Rule:
    rule = get_object_or_404(Rule.objects.select_related("app__organisation"), pk=rule_id, deleted_ms=None)
    access.require_app(_person(request), rule.app_id, role)
    return rule


def _message(request: HttpRequest, message_id: int, role: str) -> Outbox:
    message = get_object_or_404(Outbox.objects.select_related("app__organisation"), pk=message_id, kind="mail")
    access.require_app(_person(request), message.app_id, role)
    return message


def _form(request: HttpRequest, app: App, initial: dict[str, Any]) -> RuleForm:
    data = request.POST if request.method == "POST" else None
    ask = in_turn(app.organisation_id, ask_engine)
    return RuleForm(data, initial=initial, app=app.pk, ask=ask, at_ms=_clock.now_ms())


def _keep(request: HttpRequest, app: App, form: RuleForm, rule: Rule | None) -> HttpResponse:
    person, now_ms, draft = _person(request), _clock.now_ms(), form.draft()
    try:
        if rule is None:
            kept = rulebook.write(app, draft, by=person, now_ms=now_ms)
        else:
            kept = rulebook.change(rule, draft, by=person, now_ms=now_ms)
    except LimitExceeded as refusal:
        form.add_error(None, str(refusal))
        return _page(request, "form", app, form=form, heading="New rule")
    messages.success(request, f"“{kept.name}” is saved.")
    return redirect("alerts:rule", kept.pk)


def _page(request: HttpRequest, name: str, app: App, **context: Any) -> HttpResponse:
    may_edit = access.has_role(_person(request), app, Role.EDITOR)
    return render(request, f"alerts/{name}.html", {"app": app, "may_edit": may_edit, **context})


def _list_path(app: App) -> str:
    return f"/alerts/?app={app.pk}"
