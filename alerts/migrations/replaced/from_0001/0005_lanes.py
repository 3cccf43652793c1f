"""Adds lanes, operations, versions and instances, and moves the rules and the open alerts there.

A lane begins where its app's rules were evaluated last. Pending and firing alerts become instances. The history keeps
its rows; its states ``inactive`` and ``resolved`` are ``ok`` from now on.
"""

import django.db.models.deletion
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

PERIOD_MS = 10_000
HOLD_MS, MISSING_FOR_MS = 900_000, 300_000
ASPECTS = [("value", "Value"), ("missing", "Missing"), ("error", "Error")]
PHASES = [("ok", "Ok"), ("pending", "Pending"), ("firing", "Firing"), ("recovering", "Recovering")]
STATES = [*PHASES, ("inactive", "Inactive"), ("resolved", "Resolved")]
KEY = models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")


def add_lanes(apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    """Give each app with rules a lane, each rule its first version, and each open alert an instance."""
    rules, lanes = apps.get_model("alerts", "Rule"), apps.get_model("alerts", "Lane")
    positions = dict(rules.objects.values_list("app_id").annotate(models.Max("evaluated_ms")))
    newest = dict(rules.objects.values_list("app_id").annotate(models.Max("created_ms")))
    for app, position_ms in positions.items():
        start_ms = (position_ms or newest[app]) // PERIOD_MS * PERIOD_MS
        lanes.objects.create(app_id=app, position_ms=start_ms, first_ms=start_ms)
        positions[app] = start_ms
    versions = apps.get_model("alerts", "RuleVersionRow")
    versions.objects.bulk_create(
        [
            versions(rule=rule, from_ms=positions[rule.app_id] + PERIOD_MS, seq=0, content=_content(rule))
            for rule in rules.objects.filter(deleted_ms=None)
        ],
        batch_size=500,
    )
    alerts, instances = apps.get_model("alerts", "Alert"), apps.get_model("alerts", "Instance")
    open_alerts = alerts.objects.filter(state__in=("pending", "firing")).iterator(chunk_size=1_000)
    instances.objects.bulk_create((_instance(instances, alert) for alert in open_alerts), batch_size=500)
    events = apps.get_model("alerts", "AlertEvent")
    for column in ("before", "state"):
        events.objects.filter(**{f"{column}__in": ("inactive", "resolved")}).update(**{column: "ok"})


def take_back(apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    """Turn instances into alerts again, and lanes into the rules' own positions."""
    rules, alerts = apps.get_model("alerts", "Rule"), apps.get_model("alerts", "Alert")
    for lane in apps.get_model("alerts", "Lane").objects.all():
        rules.objects.filter(app_id=lane.app_id).update(evaluated_ms=lane.position_ms)
    instances = apps.get_model("alerts", "Instance").objects.filter(aspect="value").iterator(chunk_size=1_000)
    alerts.objects.bulk_create(
        (
            alerts(
                rule_id=each.rule_id,
                fingerprint=each.fingerprint,
                labels=each.labels,
                state="pending" if each.phase == "pending" else "firing",
                since_ms=each.start_ms or each.since_ms,
                episode_ms=each.active_ms,
                value=each.value,
                well_since_ms=each.since_ms if each.phase == "recovering" else None,
            )
            for each in instances
        ),
        batch_size=500,
    )
    events = apps.get_model("alerts", "AlertEvent")
    events.objects.exclude(superseded_seq=None).delete()
    events.objects.exclude(aspect="value").delete()
    events.objects.filter(before=models.F("state")).delete()
    for column in ("before", "state"):
        events.objects.filter(**{column: "recovering"}).update(**{column: "firing"})
        events.objects.filter(**{column: "ok"}).update(**{column: "inactive"})


def _content(rule: models.Model) -> dict[str, object]:
    """Return the content of a rule's version, as ``alerts.journal.content_of`` writes it."""
    fields = {name: getattr(rule, name) for name in ("comparator", "threshold", "recovery")}
    times = {name: getattr(rule, name) for name in ("for_ms", "keep_firing_for_ms")}
    return {
        "expr": getattr(rule, "expr"),  # noqa: B009  # a historical model has no typed fields
        "condition": {**fields, "missing": "hold"},
        "timing": {**times, "hold_ms": HOLD_MS, "firing_max_ms": None},
        "missing_for_ms": MISSING_FOR_MS,
        "ended": "" if getattr(rule, "enabled") else "switched off",  # noqa: B009
    }


def _instance(instances: type[models.Model], alert: models.Model) -> models.Model:
    """Return the instance of an open alert: one that is well for a while is recovering."""
    old = {name: getattr(alert, name) for name in ("rule_id", "fingerprint", "labels", "value", "episode_ms")}
    state, since_ms, well_ms = (getattr(alert, name) for name in ("state", "since_ms", "well_since_ms"))
    phase = "pending" if state == "pending" else "firing" if well_ms is None else "recovering"
    return instances(
        rule_id=old["rule_id"],
        fingerprint=old["fingerprint"],
        aspect="value",
        labels=old["labels"],
        phase=phase,
        since_ms=since_ms if well_ms is None else well_ms,
        start_ms=None if phase == "pending" else since_ms,
        active_ms=old["episode_ms"],
        value=old["value"],
    )


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0007_logins"),
        ("alerts", "0003_episodes"),
    ]

    operations = [
        migrations.CreateModel(
            name="Lane",
            fields=[
                ("id", KEY.clone()),
                ("seq", models.BigIntegerField(default=0)),
                ("position_ms", models.BigIntegerField(help_text="judged up to this step")),
                ("first_ms", models.BigIntegerField(help_text="the step before the first one that was judged")),
                ("waiting", models.TextField(blank=True, help_text="why the next step is not judged yet")),
                ("lease_until_ms", models.BigIntegerField(default=0)),
                (
                    "app",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="lane", to="accounts.app"
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["position_ms"], name="alerts_lane_positio_88891e_idx")],
            },
        ),
        migrations.CreateModel(
            name="Operation",
            fields=[
                ("id", KEY.clone()),
                ("seq", models.BigIntegerField()),
                (
                    "kind",
                    models.CharField(
                        choices=[("judge", "Judge"), ("skip", "Skip"), ("rewind", "Rewind")], max_length=8
                    ),
                ),
                ("after_ms", models.BigIntegerField()),
                ("upto_ms", models.BigIntegerField()),
                ("made_ms", models.BigIntegerField()),
                (
                    "lane",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="operations", to="alerts.lane"
                    ),
                ),
            ],
            options={
                "ordering": ["-seq"],
                "indexes": [models.Index(fields=["made_ms"], name="alerts_oper_made_ms_c50e54_idx")],
                "constraints": [models.UniqueConstraint(fields=("lane", "seq"), name="one_operation_per_number")],
            },
        ),
        migrations.CreateModel(
            name="RuleVersionRow",
            fields=[
                ("id", KEY.clone()),
                ("from_ms", models.BigIntegerField()),
                ("until_ms", models.BigIntegerField(blank=True, null=True)),
                ("seq", models.BigIntegerField(help_text="the lane's number that the edit took")),
                ("content", models.JSONField()),
                (
                    "rule",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="versions", to="alerts.rule"
                    ),
                ),
            ],
            options={
                "ordering": ["rule", "from_ms"],
                "constraints": [models.UniqueConstraint(fields=("rule", "from_ms"), name="one_version_per_step")],
            },
        ),
        migrations.CreateModel(
            name="Instance",
            fields=[
                ("id", KEY.clone()),
                ("fingerprint", models.CharField(blank=True, max_length=32)),
                ("aspect", models.CharField(choices=ASPECTS, max_length=8)),
                ("labels", models.JSONField()),
                ("phase", models.CharField(choices=PHASES, max_length=10)),
                ("since_ms", models.BigIntegerField(help_text="the step at which the phase began")),
                ("start_ms", models.BigIntegerField(blank=True, help_text="the first firing step", null=True)),
                ("active_ms", models.BigIntegerField(help_text="the step at which it left ok")),
                ("missing_ms", models.BigIntegerField(blank=True, help_text="the first step without data", null=True)),
                ("value", models.FloatField(help_text="at its last transition", null=True)),
                ("detail", models.TextField(blank=True, help_text="the text of an error")),
                (
                    "rule",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="instances", to="alerts.rule"
                    ),
                ),
            ],
            options={
                "ordering": ["phase", "-since_ms"],
                "constraints": [
                    models.UniqueConstraint(fields=("rule", "fingerprint", "aspect"), name="one_row_per_instance")
                ],
            },
        ),
        migrations.RemoveConstraint(model_name="alertevent", name="one_event_per_change"),
        migrations.AddField(
            model_name="alertevent",
            name="aspect",
            field=models.CharField(choices=ASPECTS, default="value", max_length=8),
        ),
        migrations.AddField(model_name="alertevent", name="before_state", field=models.JSONField(null=True)),
        migrations.AddField(
            model_name="alertevent",
            name="seq",
            field=models.BigIntegerField(default=0, help_text="the number of its operation"),
        ),
        migrations.AddField(
            model_name="alertevent",
            name="superseded_seq",
            field=models.BigIntegerField(blank=True, help_text="the operation since which it does not hold", null=True),
        ),
        migrations.AlterField(
            model_name="alertevent", name="before", field=models.CharField(choices=STATES, max_length=10)
        ),
        migrations.AlterField(
            model_name="alertevent", name="state", field=models.CharField(choices=STATES, max_length=10)
        ),
        migrations.AlterField(
            model_name="alertevent", name="fingerprint", field=models.CharField(blank=True, max_length=32)
        ),
        migrations.AddConstraint(
            model_name="alertevent",
            constraint=models.UniqueConstraint(
                condition=models.Q(("superseded_seq", None), models.Q(("seq", 0), _negated=True)),
                fields=("rule", "fingerprint", "aspect", "at_ms"),
                name="one_transition_per_step",
            ),
        ),
        migrations.AddField(model_name="rule", name="hold_ms", field=models.BigIntegerField(default=HOLD_MS)),
        migrations.AddField(
            model_name="rule",
            name="missing",
            field=models.CharField(
                choices=[
                    ("hold", "keep the state for a while"),
                    ("resolve", "it is well"),
                    ("alert", "it is an alert of its own"),
                ],
                default="hold",
                max_length=8,
            ),
        ),
        migrations.AddField(
            model_name="rule", name="missing_for_ms", field=models.BigIntegerField(default=MISSING_FOR_MS)
        ),
        migrations.RunPython(add_lanes, take_back),
    ]
