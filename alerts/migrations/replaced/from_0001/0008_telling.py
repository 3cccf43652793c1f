"""Adds the tables of telling, and hands over from the outbox.

What the outbox has said of an episode counts as said, so nobody is notified twice. Messages that still wait there become
plain mail, one for each address, and are delivered from there. Going back does the same with notifications that wait.
"""

import json
from collections.abc import Iterable
from hashlib import blake2b

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

ROWS = 500  # of one statement
DAY_MS = 86_400_000


def hand_over(apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    """Write what was said, then turn what waits into plain mail."""
    outbox = apps.get_model("alerts", "Outbox")
    rows = outbox.objects.filter(kind="mail").exclude(state="dead").order_by("pk")
    names = _names(apps)
    said: dict[tuple[int, str], str] = {}  # by episode and receiver: the last state
    for row in rows.iterator(chunk_size=ROWS):
        if "labels" in row.payload:
            series, state = (row.payload["rule"], row.payload["fingerprint"]), str(row.payload["state"])
            number = names.get((*series, row.key.split(":")[-2])) or names.get(
                (*series, f"{state} {row.payload['at_ms']}")
            )
            if number is not None:
                said |= {(number, target): state for target in row.payload["receivers"]}
    _write_words(apps, said)
    for row in rows.filter(state="waiting").iterator(chunk_size=ROWS):
        if "labels" in row.payload:
            series = ", ".join(f"{name}={value}" for name, value in sorted(row.payload["labels"].items()))
            title = f"{row.payload['name']}: {series}"
            subject = f"[{str(row.payload['state']).upper()}] {title}"
            _plain_mail(apps, row.key, row.app_id, row.payload["receivers"], subject, row.created_ms)
            row.delete()


def hand_back(apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    """Turn notifications that wait into plain mail."""
    rows = apps.get_model("alerts", "Notification").objects.filter(state="waiting").order_by("pk")
    for row in rows.iterator(chunk_size=ROWS):
        lines = [f"[{str(line['word']).upper()}] {line['name']}: {line['labels']}" for line in row.body["lines"]]
        _plain_mail(apps, f"notification:{row.key}", None, row.body["receivers"], "; ".join(lines), row.created_ms)


def _names(apps: StateApps) -> dict[tuple[int, str, str], int]:
    """Return the episodes that can still be told anew, by rule, series, and how a message names them.

    Newer messages name the id in their key, older ones only the step of which they speak. Judging goes back a day at
    most, so what ended before stays as it was told.
    """
    episodes = apps.get_model("alerts", "Episode").objects.exclude(aspect="error")
    newest_ms = episodes.aggregate(newest=models.Max("changed_ms"))["newest"] or 0
    names: dict[tuple[int, str, str], int] = {}
    for each in episodes.filter(models.Q(end_ms=None) | models.Q(end_ms__gt=newest_ms - DAY_MS)).order_by("pk"):
        series = (each.rule_id, each.fingerprint)
        names |= {
            (*series, name): each.pk for name in (f"firing {each.start_ms}", f"resolved {each.end_ms}", str(each.pk))
        }
    return names


def _write_words(apps: StateApps, said: dict[tuple[int, str], str]) -> None:
    receivers, groups, words = (
        apps.get_model("alerts", name) for name in ("Receiver", "NotificationGroup", "LastWord")
    )
    rows = apps.get_model("alerts", "Episode").objects.in_bulk({episode for episode, _ in said})
    owners = dict(apps.get_model("alerts", "Rule").objects.values_list("pk", "app__organisation"))
    known: dict[tuple[int, str, int], tuple[int, int]] = {}  # by organisation, target and rule: receiver and group
    for (number, target), state in said.items():
        episode = rows[number]
        place = (owners[episode.rule_id], target, episode.rule_id)
        if place not in known:
            known[place] = _receiver_and_group(receivers, groups, *place)
        receiver, group = known[place]
        closed = "void" if episode.status == "void" else "ended"
        level = closed if state == "resolved" else "open"
        words.objects.create(receiver_id=receiver, episode_id=number, group_id=group, level=level)


def _receiver_and_group(
    receivers: type[models.Model], groups: type[models.Model], organisation: int, target: str, rule: int
) -> tuple[int, int]:
    """Return the ids of a receiver and its group of a rule, which is named as ``alerts.telling.hook`` names it."""
    new = {"created_ms": 0, "tokens": 10}
    receiver, _ = receivers._default_manager.get_or_create(
        organisation_id=organisation, kind="mail", target=target, defaults=new
    )
    labels = [["rule", str(rule)]]
    key = blake2b(json.dumps([None, labels]).encode(), digest_size=16).hexdigest()
    group, _ = groups._default_manager.get_or_create(
        receiver_id=receiver.pk, key=key, defaults={"labels": dict(labels), "next_look_ms": 0}
    )
    return receiver.pk, group.pk


def _plain_mail(
    apps: StateApps, key: str, app: int | None, receivers: Iterable[str], subject: str, created_ms: int
) -> None:
    outbox = apps.get_model("alerts", "Outbox")
    outbox.objects.bulk_create(
        outbox(
            kind="account",
            key=f"{key[:190]}:{number}",
            app_id=app,
            payload={"receivers": [receiver], "subject": " ".join(subject.split())[:200], "body": f"{subject}\n"},
            created_ms=created_ms,
            next_attempt_ms=0,
        )
        for number, receiver in enumerate(receivers)
    )


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0008_rate_help"),
        ("alerts", "0007_without_alerts"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Acknowledgement",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at_ms", models.BigIntegerField()),
                ("until_ms", models.BigIntegerField()),
                (
                    "by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "episode",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="acknowledgement", to="alerts.episode"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="ContactPoint",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=120)),
                (
                    "organisation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.organisation"
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="Inhibition",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("source", models.TextField()),
                ("target", models.TextField()),
                ("equal", models.JSONField(default=list)),
                (
                    "organisation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.organisation"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="MuteTiming",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=120)),
                ("matchers", models.TextField()),
                ("cron", models.CharField(max_length=120)),
                ("zone", models.CharField(default="UTC", max_length=64)),
                ("duration_ms", models.BigIntegerField()),
                (
                    "organisation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.organisation"
                    ),
                ),
            ],
            options={
                "ordering": ["name", "id"],
            },
        ),
        migrations.CreateModel(
            name="Notification",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.CharField(max_length=80, unique=True)),
                ("body", models.JSONField()),
                ("levels", models.JSONField()),
                (
                    "state",
                    models.CharField(
                        choices=[("waiting", "Waiting"), ("sent", "Sent"), ("dead", "Dead")],
                        default="waiting",
                        max_length=8,
                    ),
                ),
                ("attempts", models.IntegerField(default=0)),
                ("created_ms", models.BigIntegerField()),
                ("next_attempt_ms", models.BigIntegerField()),
                ("sent_ms", models.BigIntegerField(blank=True, null=True)),
                ("is_doubtful", models.BooleanField(default=False)),
                ("answer", models.TextField(blank=True)),
                ("claim", models.BigIntegerField(default=0)),
                ("claim_until_ms", models.BigIntegerField(default=0)),
                (
                    "organisation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.organisation"
                    ),
                ),
            ],
            options={
                "ordering": ["-created_ms", "-id"],
            },
        ),
        migrations.CreateModel(
            name="Policy",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("position", models.IntegerField(default=0)),
                ("matchers", models.TextField()),
                ("group_by", models.JSONField(default=list)),
                ("wait_ms", models.BigIntegerField()),
                ("interval_ms", models.BigIntegerField()),
                ("repeat_ms", models.BigIntegerField()),
                (
                    "goes_on",
                    models.BooleanField(default=False, help_text="policies after this one may take the alert too"),
                ),
                (
                    "contact_point",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="policies", to="alerts.contactpoint"
                    ),
                ),
                (
                    "organisation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.organisation"
                    ),
                ),
                (
                    "parent",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="children",
                        to="alerts.policy",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "policies",
                "ordering": ["position", "id"],
            },
        ),
        migrations.CreateModel(
            name="Receiver",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(max_length=16)),
                ("target", models.CharField(max_length=500)),
                ("created_ms", models.BigIntegerField()),
                ("tokens", models.FloatField()),
                ("tokens_ms", models.BigIntegerField(default=0, help_text="when it had so many tokens")),
                ("digests", models.BigIntegerField(default=0, help_text="number of its last digest")),
                ("dead_in_a_row", models.IntegerField(default=0, help_text="notifications since one was delivered")),
                (
                    "organisation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.organisation"
                    ),
                ),
            ],
            options={
                "ordering": ["kind", "target"],
            },
        ),
        migrations.CreateModel(
            name="NotificationGroup",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.CharField(max_length=32)),
                ("labels", models.JSONField()),
                ("n", models.BigIntegerField(default=0)),
                (
                    "first_key",
                    models.CharField(blank=True, help_text="of its first notification: the thread", max_length=80),
                ),
                ("last_flush_ms", models.BigIntegerField(null=True)),
                ("blocked_until_ms", models.BigIntegerField(default=0)),
                ("next_look_ms", models.BigIntegerField(db_index=True, null=True)),
                (
                    "open",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="groups",
                        to="alerts.notification",
                    ),
                ),
                (
                    "policy",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to="alerts.policy"
                    ),
                ),
                (
                    "receiver",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="groups", to="alerts.receiver"
                    ),
                ),
            ],
        ),
        migrations.AddField(
            model_name="notification",
            name="receiver",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="notifications", to="alerts.receiver"
            ),
        ),
        migrations.CreateModel(
            name="LastWord",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("level", models.CharField(default="nothing", max_length=8)),
                ("is_doubtful", models.BooleanField(default=False)),
                ("reason", models.CharField(blank=True, max_length=200)),
                (
                    "episode",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="last_words", to="alerts.episode"
                    ),
                ),
                (
                    "group",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="last_words",
                        to="alerts.notificationgroup",
                    ),
                ),
                (
                    "receiver",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="last_words", to="alerts.receiver"
                    ),
                ),
            ],
        ),
        migrations.AddField(
            model_name="contactpoint",
            name="receivers",
            field=models.ManyToManyField(related_name="contact_points", to="alerts.receiver"),
        ),
        migrations.CreateModel(
            name="Silence",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("matchers", models.TextField()),
                ("from_ms", models.BigIntegerField()),
                ("to_ms", models.BigIntegerField()),
                ("comment", models.CharField(blank=True, max_length=200)),
                ("created_ms", models.BigIntegerField()),
                (
                    "created_by",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "organisation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.organisation"
                    ),
                ),
            ],
            options={
                "ordering": ["-to_ms", "-id"],
            },
        ),
        migrations.AddConstraint(
            model_name="receiver",
            constraint=models.UniqueConstraint(fields=("organisation", "kind", "target"), name="one_receiver"),
        ),
        migrations.AddConstraint(
            model_name="notificationgroup",
            constraint=models.UniqueConstraint(fields=("receiver", "key"), name="one_notification_group"),
        ),
        migrations.AddIndex(
            model_name="notification",
            index=models.Index(fields=["state", "next_attempt_ms"], name="alerts_noti_state_647106_idx"),
        ),
        migrations.AddIndex(
            model_name="notification",
            index=models.Index(fields=["organisation", "-created_ms"], name="alerts_noti_organis_07954f_idx"),
        ),
        migrations.AddConstraint(
            model_name="lastword",
            constraint=models.UniqueConstraint(fields=("receiver", "episode"), name="one_last_word"),
        ),
        migrations.AddConstraint(
            model_name="contactpoint",
            constraint=models.UniqueConstraint(fields=("organisation", "name"), name="one_contact_point"),
        ),
        migrations.AddIndex(
            model_name="silence",
            index=models.Index(fields=["organisation", "to_ms"], name="alerts_sile_organis_552da4_idx"),
        ),
        migrations.RunPython(hand_over, hand_back),
    ]
