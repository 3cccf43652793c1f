"""The addresses that notifications name: the rules of their lines."""

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.urls import reverse


def rule_links(payload: Mapping[str, Any]) -> dict[int, str]:
    """Return the addresses of the rules that the notification speaks of."""
    return {line["rule"]: rule_url(line["rule"]) for line in payload["lines"]}


def rule_url(rule: int) -> str:
    """Return the address of a rule; of all rules for a test, which has none."""
    path = reverse("alerts:rule", args=[rule]) if rule else reverse("alerts:rules")
    return f"{settings.SPM_BASE_URL}{path}"
