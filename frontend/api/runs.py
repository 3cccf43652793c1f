"""Runs of an app: the list, one run with its progress, and its roll back; and the hours that runs rebuilt."""

from datetime import datetime
from typing import Any

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from frontend.api.base import FailureSerializer, Operation
from frontend.presenters import runs
from frontend.presenters.runs import AppRun
from rollups.models import Correction, date_of
from rollups.services import runs as services_runs
from spm.accounts.organisations.rights import Right
from spm.clock import SystemClock, moment

_clock = SystemClock()
_READ = {401: FailureSerializer, 404: FailureSerializer}
_WRITE = {**_READ, 403: FailureSerializer, 409: FailureSerializer, 503: FailureSerializer}
CORRECTIONS_SHOWN = 500


class RunSerializer(serializers.Serializer[Any]):
    """The app's own part of a run. While the run also works for other apps, only the share done is shown."""

    number = serializers.IntegerField()
    kind = serializers.CharField()
    executor = serializers.CharField()
    state = serializers.CharField()
    percent = serializers.IntegerField(help_text="how much of the whole run is done")
    units = serializers.IntegerField(allow_null=True, help_text="hours of shards that are done")
    units_total = serializers.IntegerField(allow_null=True)
    samples = serializers.IntegerField(allow_null=True)
    size_bytes = serializers.IntegerField()
    samples_per_s = serializers.FloatField(allow_null=True)
    eta_s = serializers.FloatField(allow_null=True, help_text="remaining seconds, while it runs")
    started = serializers.DateTimeField()
    finished = serializers.DateTimeField(allow_null=True)
    first_day = serializers.DateField(allow_null=True)
    last_day = serializers.DateField(allow_null=True)


class RolledBackSerializer(serializers.Serializer[Any]):
    """One day that was rolled back."""

    day = serializers.DateField()
    units = serializers.IntegerField()


class CorrectionSerializer(serializers.ModelSerializer[Correction]):
    """One hour that was rebuilt."""

    class Meta:
        model = Correction
        fields = ["hour", "run", "cause", "samples", "sources", "at"]


class Runs(Operation):
    """The runs of an app."""

    @extend_schema(operation_id="runs", responses={200: RunSerializer(many=True), **_READ})
    def get(self, request: Request, app_id: int) -> Response:
        """The latest, newest first."""
        return Response(RunSerializer(runs.app_runs(self.app(app_id), _now()), many=True).data)


class OneRun(Operation):
    """One run."""

    @extend_schema(operation_id="run", responses={200: RunSerializer, **_READ})
    def get(self, request: Request, app_id: int, number: int) -> Response:
        """One run with its progress."""
        return Response(RunSerializer(_find_run(self, app_id, number, Right.SEE_APP)).data)


class Rollback(Operation):
    """The roll back of a run."""

    @extend_schema(
        operation_id="run_rollback", request=None, responses={200: RolledBackSerializer(many=True), **_WRITE}
    )
    def post(self, request: Request, app_id: int, number: int) -> Response:
        """Roll the run back in this app; for an owner in person. No sample is lost."""
        app = self.app(app_id, Right.ROLL_BACK)
        run, by = _find_run(self, app_id, number, Right.ROLL_BACK), self.actor()
        rolled_back = services_runs.roll_back(
            services_runs.site(), run.number, by.person, apps=[app.pk], name=by.name, origin=by.origin
        )
        days = [{"day": date_of(back.day), "units": back.hour_shards} for back in rolled_back]
        return Response(RolledBackSerializer(days, many=True).data)


class Corrections(Operation):
    """Hours whose rollup rows were rebuilt."""

    @extend_schema(operation_id="corrections", responses={200: CorrectionSerializer(many=True), **_READ})
    def get(self, request: Request, app_id: int) -> Response:
        """The latest, newest first."""
        rows = Correction.objects.filter(app=self.app(app_id))[:CORRECTIONS_SHOWN]
        return Response(CorrectionSerializer(rows, many=True).data)


def _find_run(operation: Operation, app_id: int, number: int, right: Right) -> AppRun:
    run = runs.app_run(operation.app(app_id, right), number, _now())
    if run is None:
        raise Http404("There is no such run in this app.")
    return run


def _now() -> datetime:
    return moment(_clock.now_ms())
