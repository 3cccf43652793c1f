"""A filter of the pages of help: text in which ticks mark code, as descriptions of operations have it."""

import re

from django import template
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

register = template.Library()


@register.filter
def with_code(text: str) -> SafeString:
    """Write what stands between ticks, single or double, as code; empty lines begin a paragraph."""
    plain = re.sub(r"(`{1,2})([^`\n]+)\1", r"<code>\2</code>", str(escape(text)))
    return mark_safe(re.sub(r"\n\s*\n", "<br>", plain))
