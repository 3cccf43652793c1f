"""Template filters of the alerting pages: durations, times, numbers and series as text."""

from collections.abc import Mapping

from django import template
from django.forms import BoundField

from alerts import durations
from alerts.models.telling import Receiver
from alerts.notify import registry, text
from alerts.notify.email import goes_to_a_folder
from alerts.pages.editor.kinds import FIELD_KINDS

register = template.Library()


@register.inclusion_tag("alerts/parts/mail_notice.html")
def mail_notice() -> dict[str, bool]:
    """Say in red that mail reaches nobody, if it is written into a folder."""
    return {"goes_nowhere": goes_to_a_folder()}


@register.filter
def spell(ms: int) -> str:
    """Write a duration: ``5m``."""
    return durations.spell(ms)


@register.filter
def kind_classes(field: BoundField) -> str:
    """Return the style classes of a field that only some kinds of rules use."""
    kinds = FIELD_KINDS.get(field.name, ())
    return " ".join(["of", *(f"of-{kind}" for kind in kinds)]) if kinds else ""


@register.filter
def value(number: float | None) -> str:
    """Write a number with six digits; None is a dash."""
    return "–" if number is None else f"{number:.6g}"


@register.filter
def series(labels: Mapping[str, str]) -> str:
    """Write a label set: ``cpu host=a``."""
    return text.series(labels) or "all series together"


@register.filter
def shown(receiver: Receiver) -> str:
    """Write a receiver without what is secret of it."""
    return registry.shown(receiver.kind, receiver.target)


@register.filter
def shown_address(receiver: str) -> str:
    """Write a receiver of a rule without what is secret of it."""
    return registry.shown(registry.kind_of(receiver) or "", receiver)
