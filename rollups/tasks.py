"""The beat's question whether a run is due. It carries no truth: the next tick asks again."""

from celery import shared_task

from rollups import conduct


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def consider_run() -> str:
    """Start a run when enough waits, or an hour has closed."""
    return conduct.consider(conduct.site()).name
