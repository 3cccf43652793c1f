"""Stars: a person's own marks, which put dashboards first in their list. Enter by ``listed`` and ``set_star``."""

from collections.abc import Sequence

from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, QuerySet

from frontend.dashboards.models import Dashboard, Star
from spm.accounts.models import App


def with_stars(rows: QuerySet[Dashboard], person: User) -> QuerySet[Dashboard]:
    """Add ``starred`` to each dashboard: whether this person has put a star on it."""
    return rows.annotate(starred=Exists(Star.objects.filter(dashboard=OuterRef("pk"), person=person)))


def listed(app: App, person: User) -> list[Dashboard]:
    """List the dashboards of an app as a person sees them: starred ones first, each part by title."""
    rows = with_stars(Dashboard.objects.filter(app=app), person)
    return sorted(rows, key=lambda each: not each.starred)  # type: ignore[attr-defined]  # the annotation


def set_star(dashboard: Dashboard, person: User, *, starred: bool) -> None:
    """Put a person's star on a dashboard, or take it away; repeating it changes nothing."""
    if starred:
        Star.objects.get_or_create(dashboard=dashboard, person=person)
    else:
        Star.objects.filter(dashboard=dashboard, person=person).delete()


def after(dashboard: Dashboard, dashboards: Sequence[Dashboard]) -> Dashboard | None:
    """Return the one that full screen shows next: of the starred ones if there are any, else of all. Pure."""
    turn = [each for each in dashboards if each.starred] or list(dashboards)  # type: ignore[attr-defined]  # as above
    numbers = [each.pk for each in turn]
    at = numbers.index(dashboard.pk) + 1 if dashboard.pk in numbers else 0
    following = turn[at % len(turn)] if turn else None
    return None if following is None or following.pk == dashboard.pk else following
