"""The accounts room as a Django app: who may see and send what."""

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    """Organisations, memberships, apps, tokens, sources."""

    name = "spm.accounts"
    label = "accounts"
    default_auto_field = "django.db.models.BigAutoField"
