"""The tables of alerts as they are since an alert can be ended by hand."""

from django.conf import settings
from django.db import migrations

from alerts.migrations import _alert_tables, _rule_tables, _telling_tables
from spm.accounts.migrations._create_tables import CreateTables


class Migration(migrations.Migration):
    initial = True
    replaces = [
        ("alerts", "0001_initial"),
        ("alerts", "0002_outbox_without_app"),
        ("alerts", "0003_episodes"),
        ("alerts", "0005_lanes"),
        ("alerts", "0007_without_alerts"),
        ("alerts", "0008_telling"),
        ("alerts", "0009_kinds_of_rules"),
        ("alerts", "0010_delivery_times"),
        ("alerts", "0011_rule_files"),
        ("alerts", "0012_series_lanes"),
        ("alerts", "0013_links_and_confirmed_receivers"),
        ("alerts", "0014_knowledge_of_operations"),
        ("alerts", "0015_escalation"),
        ("alerts", "0016_notification_budget"),
        ("alerts", "0017_noise_reports"),
        ("alerts", "0018_schedule_of_rules"),
        ("alerts", "0019_words_sent_again"),
        ("alerts", "0020_times_of_alerts"),
        ("alerts", "0021_first_acknowledgement"),
        ("alerts", "0022_manual_ends"),
    ]
    dependencies = [
        ("accounts", "0001_squashed_0012_events_scope"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]
    operations = [CreateTables([*_rule_tables.TABLES, *_alert_tables.TABLES, *_telling_tables.TABLES])]
