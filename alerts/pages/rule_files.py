"""The page of rule files: which there are, what an import would change, the import, the file as YAML, its deletion.

What would change is shown before anything is written; the button beside it does it. Who may not import sees the files.
"""

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_GET, require_http_methods

from alerts.pages.notifications import render_page
from alerts.pages.scope import app_of, person_of
from alerts.rulefiles import apply, export
from spm.accounts.models import App
from spm.accounts.organisations.rights import Right
from spm.clock import SystemClock
from spm.errors import SpmError

_clock = SystemClock()
_LINES_SHOWN = 500


@login_required
@require_http_methods(["GET", "POST"])
def file_list(request: HttpRequest) -> HttpResponse:
    """Show the rule files of an app. A POST says what an import or a deletion changes, and with ``act`` does it."""
    if request.method == "GET":
        app, name = app_of(request), request.GET.get("file", "")
        text = export.export_file(app, name) if name else None
        return _page(request, app, file_name=name if text else "", text=text or "")
    app = app_of(request, Right.IMPORT_RULES)
    name, text = request.POST.get("name", "").strip(), request.POST.get("text", "")
    is_removal, is_act = "remove" in request.POST, "act" in request.POST
    try:
        change = _bring_in_step(request, app, name, None if is_removal else text, dry_run=not is_act)
    except SpmError as refusal:
        return _page(request, app, file_name=name, text=text, refusal=str(refusal), is_removal=is_removal)
    if is_act:
        messages.success(request, f"{name}: {change.summary}.")
        return redirect(f"/alerts/files?app={app.pk}")
    lines = [line for each in change.changes for line in each.lines()]
    shown = {"lines": lines[:_LINES_SHOWN], "more": len(lines[_LINES_SHOWN:]), "is_removal": is_removal}
    return _page(request, app, file_name=name, text=text, change=change, **shown)


@login_required
@require_GET
def file_download(request: HttpRequest, name: str) -> HttpResponse:
    """Answer with a rule file of the app as YAML."""
    text = export.export_file(app_of(request), name)
    if text is None:
        raise Http404("There is no such rule file in this app.")
    response = HttpResponse(text, content_type="application/yaml")
    response.headers["Content-Disposition"] = 'attachment; filename="rules.yml"'
    return response


def _bring_in_step(request: HttpRequest, app: App, name: str, text: str | None, *, dry_run: bool) -> apply.Import:
    """Import the text under this name; without one, delete the file's rules."""
    by, now_ms = apply.Author(person_of(request)), _clock.now_ms()
    if text is None:
        return apply.remove_file(app, name, by=by, now_ms=now_ms, dry_run=dry_run)
    [change] = apply.import_files(app, {name: text}, by=by, now_ms=now_ms, dry_run=dry_run)
    return change


def _page(request: HttpRequest, app: App, **context: object) -> HttpResponse:
    return render_page(request, "rule_files", app, files=export.summaries(app), native=export.NATIVE, **context)
