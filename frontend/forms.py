"""The forms of the pages."""

from typing import Any, ClassVar

from django import forms
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm
from django.http import HttpRequest

from spm.accounts.logins import attempts
from spm.clock import moment
from spm.errors import LoginRefused
from spm.limits import (
    QUERY_TEXT_CHARS_MAX,
    RETENTION_DAYS_MAX,
    RETENTION_DAYS_MIN,
    RETRACT_REASON_CHARS_MAX,
    SOURCE_BYTES_MAX,
    TIME_MAX_MS,
)

USES: dict[str, tuple[str, ...]] = {"ingest": ("ingest",), "read": ("read",), "both": ("ingest", "read")}


class LoginForm(AuthenticationForm):
    """Login and password. ``refusal``: why they were not checked; ``device``: the id that the browser keeps."""

    refusal: LoginRefused | None = None
    device = ""

    def clean(self) -> dict[str, Any]:
        """Check both; the error says as much of logins that do not exist."""
        assert self.request is not None, "BUG: a login without a request"
        name, password = self.cleaned_data.get("username"), self.cleaned_data.get("password")
        if not name or not password:
            return self.cleaned_data
        try:
            login = attempts.log_in(self.request, name, password)
        except LoginRefused as refusal:
            self.refusal = refusal
            raise forms.ValidationError(str(refusal), code="refused") from refusal
        if login is None:
            raise self.get_invalid_login_error()
        self.user_cache, self.device = login.user, login.device
        return self.cleaned_data


class PasswordForm(PasswordChangeForm):
    """The old password and a new one, twice. ``refusal``: why the old one was not checked."""

    refusal: LoginRefused | None = None

    def __init__(self, *arguments: Any, request: HttpRequest, **named: Any) -> None:
        self._request = request
        super().__init__(*arguments, **named)

    def clean_old_password(self) -> str:
        """Check the old password as a login does: a session left open is no way to guess it."""
        old: str = self.cleaned_data["old_password"]
        try:
            is_right = attempts.is_password_of(self.user, self._request, old)
        except LoginRefused as refusal:
            self.refusal = refusal
            raise forms.ValidationError(str(refusal), code="refused") from refusal
        if not is_right:
            raise forms.ValidationError(self.error_messages["password_incorrect"], code="password_incorrect")
        return old


class TokenForm(forms.Form):
    """A token's name and its use."""

    LABELS: ClassVar = [("ingest", "Send data"), ("read", "Read data"), ("both", "Send and read")]

    name = forms.CharField(max_length=120, initial="My data", help_text="Where you will use it.")
    use = forms.ChoiceField(choices=LABELS, initial="ingest", label="May")

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes of the selected use."""
        return USES[self.cleaned_data["use"]]


class HeartbeatForm(forms.Form):
    """A heartbeat's name."""

    name = forms.CharField(max_length=120, help_text="The name of the job, for example nightly backup.")

    def clean_name(self) -> str:
        """Check the name, which becomes a label and the name of a source."""
        name: str = self.cleaned_data["name"]
        if not name.isprintable() or len(name.encode()) > SOURCE_BYTES_MAX:
            raise forms.ValidationError(f"The name must be one line of at most {SOURCE_BYTES_MAX} bytes.")
        return name


class AgentSettingsForm(forms.Form):
    """Settings to push to agents; empty fields are not pushed."""

    match = forms.CharField(max_length=300, initial="*")
    period_s = forms.FloatField(required=False, min_value=1, max_value=3_600)
    tags = forms.CharField(required=False, max_length=2_000)
    off = forms.CharField(required=False, max_length=2_000)
    discover = forms.ChoiceField(required=False, choices=[("", "unchanged"), ("yes", "on"), ("no", "off")])

    @property
    def settings(self) -> dict[str, Any]:
        """The settings as they are pushed."""
        fields = self.cleaned_data
        settings: dict[str, Any] = {"period_s": fields["period_s"]} if fields["period_s"] else {}
        pairs = [part.partition("=") for part in fields["tags"].split(",") if part.strip()]
        settings |= {"tags": {name.strip(): value.strip() for name, _, value in pairs}} if pairs else {}
        names = [name.strip() for name in fields["off"].split(",") if name.strip()]
        settings |= {"off": names} if names else {}
        return settings | ({"discover": fields["discover"] == "yes"} if fields["discover"] else {})


class MomentField(forms.DateTimeField):
    """A date and time in UTC; its value is milliseconds."""

    def __init__(self, **options: Any) -> None:
        widget = forms.DateTimeInput(attrs={"type": "datetime-local", "step": "1"}, format="%Y-%m-%dT%H:%M:%S")
        super().__init__(required=False, widget=widget, **options)

    def clean(self, value: Any) -> Any:
        """Return milliseconds; a time out of range is an error of this field."""
        moment = super().clean(value)
        if moment is None:
            return None
        ms = int(moment.timestamp() * 1000)
        if not 0 <= ms <= TIME_MAX_MS:
            raise forms.ValidationError("This time is out of range.")
        return ms

    def prepare_value(self, value: Any) -> Any:
        """Write milliseconds for the browser's field."""
        return moment(value).replace(tzinfo=None) if isinstance(value, int) else value


class RetractionForm(forms.Form):
    """What to retract, and why."""

    source = forms.CharField(required=False, max_length=SOURCE_BYTES_MAX)
    series = forms.CharField(required=False, max_length=QUERY_TEXT_CHARS_MAX)
    write_from = MomentField()
    write_to = MomentField()
    data_from = MomentField()
    data_to = MomentField()
    reason = forms.CharField(required=False, max_length=RETRACT_REASON_CHARS_MAX)


def _days() -> forms.IntegerField:
    return forms.IntegerField(required=False, min_value=RETENTION_DAYS_MIN, max_value=RETENTION_DAYS_MAX)


class RetentionForm(forms.Form):
    """The days that each resolution is kept; empty is forever."""

    raw_days, hour_days, day_days = _days(), _days(), _days()
