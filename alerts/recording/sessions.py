"""Evaluates the expressions of rules that are judged: they may read the alerts of the run that judges them."""

from alerts.expressions import Session, evaluator_of, open_storage
from alerts.judging.answers import Read
from alerts.judging.readers.run_alerts import ReadsAlerts, RunAlerts
from alerts.recording.judged_alerts import with_run_alerts
from spm import limits
from spm.query.shared_reads import SharedReads
from spm.query.storage import Storage


def open_session(app: int, known: Storage | None = None) -> ReadsAlerts:
    """Return what evaluates expressions of the app's rules.

    ``known`` is the app's data as known at some moment, by default now. Raises ``StoreUnavailable``.
    """
    return _RuleSession(open_storage(app) if known is None else SharedReads(known, limits.QUERY_BYTES_MAX))


class _RuleSession(Session):
    def with_alerts(self, alerts: RunAlerts) -> Read:
        """Return what evaluates expressions that see the alerts of a run under way."""
        return evaluator_of(with_run_alerts(self.storage, alerts))
