"""The pages of routing: policies with the tester, inhibitions, and maintenance windows.

Each view checks what the person may do, makes one call, and renders. What belongs to another organisation answers 404.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_http_methods, require_POST

from alerts.models.telling import Inhibition, MuteTiming, Policy
from alerts.open_alerts import AlertFilter, open_alerts
from alerts.pages.notifications import render_page
from alerts.pages.routing_forms import InhibitionForm, PolicyForm, WindowForm
from alerts.pages.scope import app_of, person_of
from alerts.telling import limits
from alerts.telling.configuration import next_windows_of
from alerts.telling.settings import rows
from alerts.telling.settings.checks import Setting
from alerts.telling.settings.tester import RouteTest, labels_text, read_labels, tree_of, try_route
from spm.accounts.models import App
from spm.accounts.organisations.rights import Right
from spm.clock import SystemClock
from spm.errors import BadQuery, SpmError

_clock = SystemClock()
_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Trial:
    """An alert that a person tries: its labels as text, and where it would go, or why the text is none."""

    text: str
    test: RouteTest | None = None
    error: str = ""

    @property
    def verdicts(self) -> Mapping[int, object]:
        """The verdict of each policy, by its number."""
        return {} if self.test is None else {each.policy.pk: each for each in self.test.verdicts}

    @property
    def points(self) -> Sequence[str]:
        """The contact points to which the alert would go."""
        return [each.policy.contact_point.name for each in self.test.verdicts if each.takes] if self.test else []


@login_required
@require_http_methods(["GET", "POST"])
def policy_list(request: HttpRequest) -> HttpResponse:
    """Show the policies and inhibitions, try where an alert would go, and create a policy."""
    app = app_of(request, Right.MANAGE_POLICIES if request.method == "POST" else Right.SEE_APP)
    form = PolicyForm(request.POST if request.method == "POST" else None, organisation=app.organisation_id)
    if _is_policy_written(request, form, Policy(organisation=app.organisation)):
        return _back("policies", app)
    return _policies(request, app, form=form)


@login_required
@require_http_methods(["GET", "POST"])
def policy_edit(request: HttpRequest, policy_id: int) -> HttpResponse:
    """Change a policy."""
    app = app_of(request, Right.MANAGE_POLICIES)
    policy = get_object_or_404(Policy, pk=policy_id, organisation=app.organisation_id)
    typed = request.POST if request.method == "POST" else None
    form = PolicyForm(typed, organisation=app.organisation_id, policy=policy)
    if _is_policy_written(request, form, policy):
        return _back("policies", app)
    return _policies(request, app, form=form, policy=policy)


@login_required
@require_POST
def policy_delete(request: HttpRequest, policy_id: int) -> HttpResponse:
    """Delete a policy with those below it."""
    return _deleted(request, Policy, policy_id, Right.MANAGE_POLICIES, "policies")


@login_required
@require_POST
def inhibition_write(request: HttpRequest) -> HttpResponse:
    """Create an inhibition."""
    app = app_of(request, Right.MANAGE_POLICIES)
    form = InhibitionForm(request.POST)
    if _is_written(request, form, Inhibition(organisation=app.organisation)):
        return _back("policies", app)
    return _policies(request, app, inhibition_form=form)


@login_required
@require_POST
def inhibition_delete(request: HttpRequest, inhibition_id: int) -> HttpResponse:
    """Delete an inhibition."""
    return _deleted(request, Inhibition, inhibition_id, Right.MANAGE_POLICIES, "policies")


@login_required
@require_http_methods(["GET", "POST"])
def window_list(request: HttpRequest) -> HttpResponse:
    """Show the maintenance windows with their next times, and create one."""
    app = app_of(request, Right.SILENCE if request.method == "POST" else Right.SEE_APP)
    form = WindowForm(request.POST if request.method == "POST" else None)
    if _is_written(request, form, MuteTiming(organisation=app.organisation)):
        return _back("windows", app)
    timings = MuteTiming.objects.filter(organisation=app.organisation_id)[: limits.MUTE_TIMINGS_MAX]
    windows = [(each, next_windows_of(each, _clock.now_ms())) for each in timings]
    return render_page(request, "windows", app, form=form, windows=windows)


@login_required
@require_POST
def window_delete(request: HttpRequest, window_id: int) -> HttpResponse:
    """Delete a maintenance window."""
    return _deleted(request, MuteTiming, window_id, Right.SILENCE, "windows")


def _is_written(request: HttpRequest, form: forms.Form, row: Setting) -> bool:
    """Write what was typed into the row; what is wrong with it stands on the form."""
    return _is_done(form, lambda: rows.write(row, form.cleaned_data, by=person_of(request), now_ms=_clock.now_ms()))


def _is_policy_written(request: HttpRequest, form: PolicyForm, policy: Policy) -> bool:
    """Write what was typed into the policy with its steps of escalation."""

    def write() -> None:
        steps, by, now_ms = form.escalation(), person_of(request), _clock.now_ms()
        if steps is None:
            rows.write(policy, form.values(), by=by, now_ms=now_ms)
        else:
            rows.write_policy(policy, form.values(), steps, by=by, now_ms=now_ms)

    return _is_done(form, write)


def _is_done(form: forms.Form, write: Callable[[], None]) -> bool:
    if not form.is_valid():
        return False
    try:
        write()
    except SpmError as refusal:
        form.add_error(None, str(refusal))
    return form.is_valid()


def _deleted(request: HttpRequest, model: type[Setting], number: int, right: Right, page: str) -> HttpResponse:
    app = app_of(request, right)
    row = get_object_or_404(model._default_manager.filter(organisation=app.organisation_id), pk=number)
    assert isinstance(row, model), "BUG: a row of another table"
    rows.delete(row, by=person_of(request), now_ms=_clock.now_ms())
    return _back(page, app)


def _policies(request: HttpRequest, app: App, **context: Any) -> HttpResponse:
    organisation, now_ms = app.organisation_id, _clock.now_ms()
    trial = _trial(organisation, request.GET.get("labels", ""), now_ms)
    examples, _ = open_alerts(organisation, AlertFilter(), cursor=None, limit=_EXAMPLES, now_ms=now_ms)
    blank = {"form": PolicyForm(organisation=organisation), "inhibition_form": InhibitionForm()}
    return render_page(
        request,
        "policies",
        app,
        tree=[("↳ " * depth, policy, trial.verdicts.get(policy.pk)) for policy, depth in tree_of(organisation)],
        trial=trial,
        examples=[labels_text(each.labels) for each in examples],
        inhibitions=Inhibition.objects.filter(organisation=organisation)[: limits.INHIBITIONS_MAX],
        **{**blank, **context},
    )


def _trial(organisation: int, text: str, now_ms: int) -> Trial:
    if not text.strip():
        return Trial("")
    try:
        return Trial(text, try_route(organisation, read_labels(text), now_ms))
    except BadQuery as error:
        return Trial(text, error=str(error))


def _back(page: str, app: App) -> HttpResponse:
    return redirect(f"/alerts/{page}?app={app.pk}")
