"""Form fields of the alerting pages: durations, receivers, label names, and texts by name."""

from collections.abc import Mapping
from typing import Any

from django import forms

from alerts import durations
from alerts.notify.registry import kind_of, receiver_hints
from alerts.rulefiles.label_names import WANTED, is_rule_label
from alerts.templating import template
from alerts.templating.limits import TEMPLATE_CHARS_MAX
from spm import limits
from spm.errors import BadQuery

_MONO = {"spellcheck": "false", "autocomplete": "off"}


class DurationField(forms.CharField):
    """A duration: text on the page, milliseconds in the draft; ``empty_ms`` is what an empty field means."""

    def __init__(
        self, *, empty_ms: int = 0, least_ms: int = 0, most_ms: int = limits.RULE_DURATION_MAX_MS, **kwargs: Any
    ) -> None:
        super().__init__(required=False, initial=durations.spell(empty_ms) if empty_ms else "", **kwargs)
        self._empty_ms, self._least_ms, self._most_ms = empty_ms, least_ms, most_ms

    def clean(self, value: Any) -> int:
        text = super().clean(value)
        try:
            ms = durations.read(text) if text else self._empty_ms
        except BadQuery as error:
            raise forms.ValidationError(str(error)) from error
        if ms < self._least_ms:
            raise forms.ValidationError(f"At least {durations.spell(self._least_ms)}; got {text}.")
        if ms > self._most_ms:
            raise forms.ValidationError(f"At most {durations.spell(self._most_ms)}; got {text}.")
        return ms


class ReceiversField(forms.CharField):
    """Receivers, separated by commas, spaces or line ends; each must belong to a notifier."""

    widget = forms.Textarea(attrs={"rows": 2})

    def clean(self, value: Any) -> tuple[str, ...]:
        receivers = tuple(dict.fromkeys(super().clean(value).replace(",", " ").split()))
        if len(receivers) > limits.RULE_RECEIVERS_MAX:
            raise forms.ValidationError(f"At most {limits.RULE_RECEIVERS_MAX} receivers; got {len(receivers)}.")
        for receiver in receivers:
            if kind_of(receiver) is None:
                raise forms.ValidationError(f"“{receiver}” is not a valid {receiver_hints()}.")
        return receivers


class LabelNamesField(forms.CharField):
    """Names of labels, separated by commas or spaces."""

    widget = forms.TextInput(attrs=_MONO)

    def __init__(self, *, most: int, **kwargs: Any) -> None:
        super().__init__(required=False, **kwargs)
        self._most = most

    def clean(self, value: Any) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(super().clean(value).replace(",", " ").split()))
        for name in names:
            check_label_name(name)
        if len(names) > self._most:
            raise forms.ValidationError(f"At most {self._most} labels; got {len(names)}.")
        return names


class TextsField(forms.CharField):
    """Texts by name, one a line as ``name=text``; a line that begins with two spaces goes on. Texts are templates."""

    widget = forms.Textarea(attrs={"rows": 3, **_MONO})

    def __init__(self, *, most: int, may_query: bool = True, **kwargs: Any) -> None:
        super().__init__(required=False, strip=False, **kwargs)
        self._most, self._may_query = most, may_query

    def prepare_value(self, value: Any) -> Any:
        """Write the texts for the field."""
        return write_texts(value) if isinstance(value, Mapping) else value

    def clean(self, value: Any) -> dict[str, str]:
        texts, last = dict[str, str](), ""
        for line in super().clean(value).replace("\r\n", "\n").split("\n"):
            if line.startswith("  ") and last:
                texts[last] += "\n" + line[2:]
            elif line.strip():
                last = self._take(line, texts)
        if len(texts) > self._most:
            raise forms.ValidationError(f"At most {self._most} lines; got {len(texts)}.")
        for text in texts.values():
            check_template(text, may_query=self._may_query)
        return texts

    def _take(self, line: str, texts: dict[str, str]) -> str:
        name, sign, text = line.partition("=")
        if not sign:
            raise forms.ValidationError(f"“{line.strip()[:60]}” has no =. Write one a line, like team=web.")
        name = check_label_name(name.strip())
        if name in texts:
            raise forms.ValidationError(f"{name} stands twice.")
        texts[name] = text.strip()
        return name


class TemplateField(forms.CharField):
    """One text, which may be a template."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(required=False, max_length=TEMPLATE_CHARS_MAX, **kwargs)

    def clean(self, value: Any) -> str:
        return check_template(super().clean(value).replace("\r\n", "\n"))


def write_texts(texts: Mapping[str, str]) -> str:
    """Write texts by name as ``TextsField`` reads them."""
    return "\n".join(f"{name}={text}".replace("\n", "\n  ") for name, text in texts.items())


def check_label_name(name: str) -> str:
    """Return the name; raises ``ValidationError`` if no label may have it."""
    if not is_rule_label(name):
        raise forms.ValidationError(f"“{name[:60]}” is not a label that a rule can set; wanted {WANTED}.")
    return name


def check_template(text: str, *, may_query: bool = True) -> str:
    """Return the text; raises ``ValidationError`` if it is no valid template."""
    try:
        template.check(text, may_query=may_query)
    except BadQuery as error:
        raise forms.ValidationError(f"Not a valid template: {error}") from error
    return text
