"""A tag that loads a script of a page, and asks at once for what it imports."""

from typing import Any

from django import template
from django.contrib.staticfiles.storage import staticfiles_storage
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

register = template.Library()


@register.simple_tag(takes_context=True)
def script(context: template.Context, name: str) -> SafeString:
    """Write the element of a script, and a ``modulepreload`` for each file that it imports, once per page."""
    page: Any = context.render_context.dicts[0]
    names = page.setdefault(__name__, set())  # of the files that the page asks for
    imports_of = getattr(staticfiles_storage, "imports_of", lambda _: ())  # plain files are not bundled
    preloads = [each for each in imports_of(name) if each not in names]
    names.update(preloads)
    links = format_html_join(
        "", '<link rel="modulepreload" href="{}">', ((staticfiles_storage.url(each),) for each in preloads)
    )
    return format_html('<script type="module" src="{}"></script>{}', staticfiles_storage.url(name), links)
