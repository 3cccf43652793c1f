"""Celery tasks by which beat starts runs and the daily maintenance. A lost task does no harm: the next one follows."""

from celery import shared_task

from rollups.services import maintenance as services_maintenance
from rollups.services import runs as services_runs


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def consider_run() -> str:
    """Starts a run if there is enough work or an hour has closed."""
    return services_runs.consider(services_runs.site()).name


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def consider_maintenance() -> bool:
    """Starts the maintenance if the last one is a day old, or the rows of a deleted app are due."""
    return services_maintenance.consider(services_runs.site())
