"""The admin's pages of alerting, for operators: ``judging`` and ``telling``."""

from alerts.admin import judging, telling

__all__ = ["judging", "telling"]
