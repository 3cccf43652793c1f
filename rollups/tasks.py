"""The beat's questions whether a run or the daily cleaning is due. They carry no truth: the next tick asks again."""

from celery import shared_task

from rollups.services import maintenance as services_maintenance
from rollups.services import runs as services_runs


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def consider_run() -> str:
    """Start a run when enough waits, or an hour has closed."""
    return services_runs.consider(services_runs.site()).name


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def consider_tidying() -> bool:
    """Start the cleaning when the last one is a day old, or a deleted app's bytes are due."""
    return services_maintenance.consider(services_runs.site())
