"""The pages of the rule editor: a new rule, an existing one, the check while somebody types, and the rule tried.

Without script the form works too: its button *Try* shows the same page with the rule tried on the past.
"""

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from alerts import rulebook
from alerts.backtesting.backtests import version_of
from alerts.expressions import query_engine, with_admission
from alerts.models import Rule
from alerts.pages.editor.check import check
from alerts.pages.editor.form import RuleForm, initial_of
from alerts.pages.editor.kinds import CHOICES, MEANINGS, with_fixed_windows
from alerts.pages.editor.tries import RangeForm, try_draft, unsaved
from alerts.pages.scope import app_of, person_of, whole_number
from alerts.pages.views import page, rule_of
from spm.accounts.models import App
from spm.accounts.organisations.rights import Right
from spm.clock import SystemClock
from spm.errors import BadQuery, LimitExceeded, Refused

_clock = SystemClock()


@login_required
@require_http_methods(["GET", "POST"])
def rule_new(request: HttpRequest) -> HttpResponse:
    """Create a rule; the person's own address is the first receiver."""
    app = app_of(request, Right.WRITE_RULES)
    prefilled = {name: request.GET[name] for name in RuleForm.base_fields if name in request.GET}
    if "expr" in prefilled:
        prefilled["expr"] = with_fixed_windows(prefilled["expr"])
    return _edit(request, app, None, {"receivers": person_of(request).email, "for_ms": "1m", **prefilled})


@login_required
@require_http_methods(["GET", "POST"])
def rule_edit(request: HttpRequest, rule_id: int) -> HttpResponse:
    """Change a rule."""
    rule = rule_of(request, rule_id, Right.WRITE_RULES)
    return _edit(request, rule.app, rule, initial_of(rule))


@login_required
@require_GET
def rule_check(request: HttpRequest) -> HttpResponse:
    """Show what the rule being typed says now: a part of the form's page. Fields that are wrong have their defaults."""
    app = app_of(request, Right.TRY_RULE)
    form = RuleForm(request.GET, rule=None, app=app.pk, querier=None, at_ms=_clock.now_ms(), is_tried=True)
    form.is_valid()
    version = version_of(unsaved(app, None, form.values()))
    querier = with_admission(app.organisation_id, query_engine)
    result = check(app.pk, version, at_ms=_clock.now_ms(), querier=querier)
    return page(request, "parts/check", app, check=result, version=version)


@login_required
@require_POST
def rule_try(request: HttpRequest) -> HttpResponse:
    """Show what the rule being typed would have said in the past: a part of the form's page. Nothing is written."""
    number = request.GET.get("rule", "")
    rule = rule_of(request, whole_number(number), Right.TRY_RULE) if number else None
    app = rule.app if rule else app_of(request, Right.TRY_RULE)
    form = _form(app, rule, data=request.POST, is_tried=True)
    return page(request, "parts/trial", app, form=form, **_tried(request, app, form, rule))


def _edit(request: HttpRequest, app: App, rule: Rule | None, initial: dict[str, Any]) -> HttpResponse:
    is_tried = "try" in request.POST
    form = _form(app, rule, data=request.POST if request.method == "POST" else None, initial=initial, is_tried=is_tried)
    tried: dict[str, Any] = {"trial_form": RangeForm()}
    seen = request.POST.get("seen", rule.changed_ms if rule else "")
    if is_tried:
        tried = _tried(request, app, form, rule)
    elif form.is_bound and form.is_valid():
        saved_rule = _save(request, app, form, rule)
        if saved_rule is not None:
            messages.success(request, f"“{saved_rule.name}” is saved.")
            return redirect("alerts:rule", saved_rule.pk)
        seen = rule.changed_ms if rule else ""
    kinds = [(value, title, MEANINGS[value]) for value, title in CHOICES.items()]
    return page(request, "form", app, form=form, rule=rule, kinds=kinds, seen=seen, **tried)


def _form(app: App, rule: Rule | None, *, is_tried: bool, **form: Any) -> RuleForm:
    querier = with_admission(app.organisation_id, query_engine)
    return RuleForm(rule=rule, app=app.pk, querier=querier, at_ms=_clock.now_ms(), is_tried=is_tried, **form)


def _tried(request: HttpRequest, app: App, form: RuleForm, rule: Rule | None) -> dict[str, Any]:
    trial_form, trial = RangeForm(request.POST), None
    if form.is_valid():
        trial = try_draft(unsaved(app, rule, form.values()), trial_form, now_ms=_clock.now_ms())
    return {"trial_form": trial_form, "trial": trial}


def _save(request: HttpRequest, app: App, form: RuleForm, rule: Rule | None) -> Rule | None:
    """Return the saved rule; None if it was refused, which the form then shows."""
    person, now_ms, draft = person_of(request), _clock.now_ms(), form.draft()
    try:
        if rule is None:
            return rulebook.write(app, draft, by=person, now_ms=now_ms)
        return rulebook.change(rule, draft, by=person, now_ms=now_ms, seen_ms=_seen_ms(request))
    except (BadQuery, LimitExceeded, Refused) as refusal:
        form.refuse(refusal)
        return None


def _seen_ms(request: HttpRequest) -> int | None:
    """Return when the version that the form showed was written; None for a program that does not say."""
    text = request.POST.get("seen")
    return None if text is None else whole_number(text)
