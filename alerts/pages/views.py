"""The alerting pages of rules: the list, and one rule with its history. Its form stands in ``editor``.

Each view checks what the person may do, makes one call, and renders. Rules of other people's apps answer 404, as if
they did not exist.
"""

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_POST

from alerts import rulebook
from alerts.models import Rule
from alerts.notify.email import chart_path
from alerts.pages import presenters
from alerts.pages.scope import app_of, person_of
from alerts.telling.configuration import next_scheduled
from spm.accounts import access
from spm.accounts.models import App
from spm.accounts.organisations.rights import Right
from spm.clock import SystemClock
from spm.limits import RULES_PER_APP_MAX

_clock = SystemClock()


@login_required
@require_GET
def rule_list(request: HttpRequest) -> HttpResponse:
    """Show the rules of an app: those that a text and a state leave, a page at a time."""
    app, given = app_of(request), request.GET
    text, state, at = given.get("q", "").replace("\0", "").strip(), given.get("state", ""), given.get("start", "")
    start = int(at) if at.isdecimal() and len(at) < len(str(RULES_PER_APP_MAX)) + 1 else 0
    rules = presenters.list_rules(app, _clock.now_ms(), text=text, state=state, start=start)
    chosen = {"app": app.pk, **{name: value for name, value in (("q", text), ("state", state)) if value}}
    search = {"text": text, "state": state, "states": presenters.RULE_STATES, "query": urlencode(chosen)}
    return page(request, "rules", app, rules=rules, rows=rules.rows, search=search)


@login_required
@require_GET
def rule_page(request: HttpRequest, rule_id: int) -> HttpResponse:
    """Show one rule: the states of its series, and its history."""
    rule = rule_of(request, rule_id, Right.SEE_APP)
    drawn_expr = presenters.drawn_expr_of(rule)
    return page(
        request,
        "rule",
        rule.app,
        row=presenters.row_of(rule),
        instances=presenters.instances_of(rule),
        events=presenters.events_of(rule),
        episodes=presenters.episodes_of(rule),
        chart=chart_path(rule.app_id, drawn_expr or rule.expr),
        drawn_expr=drawn_expr,
        scheduled=next_scheduled(rule, _clock.now_ms()),
    )


@login_required
@require_POST
def rule_delete(request: HttpRequest, rule_id: int) -> HttpResponse:
    """Delete a rule."""
    rule = rule_of(request, rule_id, Right.WRITE_RULES)
    rulebook.delete(rule, by=person_of(request), now_ms=_clock.now_ms())
    messages.success(request, f"“{rule.name}” is deleted.")
    return redirect(_list_path(rule.app))


def rule_of(request: HttpRequest, rule_id: int, right: Right) -> Rule:
    """Return a rule that the person has this right to; 404 or 403 otherwise."""
    rule = get_object_or_404(Rule.objects.select_related("app__organisation"), pk=rule_id, deleted_ms=None)
    access.require_app(person_of(request), rule.app_id, right)
    return rule


def page(request: HttpRequest, name: str, app: App, **context: Any) -> HttpResponse:
    """Render a page of alerting."""
    rights = access.rights_in(person_of(request), app)
    return render(request, f"alerts/{name}.html", {"app": app, "rights": rights, **context})


def _list_path(app: App) -> str:
    return f"/alerts/?app={app.pk}"
