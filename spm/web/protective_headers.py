"""The headers that protect an answer which is no page: nothing is sniffed, framed, run or cached."""

from functools import lru_cache

from django.conf import settings

POLICY = "default-src 'none'; frame-ancestors 'none'"


def protective_headers() -> dict[str, str]:
    """Return the headers that every answer to a program has."""
    return _headers(
        settings.X_FRAME_OPTIONS,
        settings.SECURE_REFERRER_POLICY,
        settings.SECURE_CROSS_ORIGIN_OPENER_POLICY,
    )


def transport_security(is_secure: bool) -> dict[str, str]:
    """Return the header that makes browsers remember HTTPS, where the site has it and the request came by it."""
    if not settings.SECURE_HSTS_SECONDS or not is_secure:
        return {}
    return {"Strict-Transport-Security": f"max-age={settings.SECURE_HSTS_SECONDS}"}


@lru_cache(maxsize=4)
def _headers(frame_options: str, referrer_policy: str, opener_policy: str) -> dict[str, str]:
    return {
        "Content-Security-Policy": POLICY,
        "X-Frame-Options": frame_options,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": referrer_policy,
        "Cross-Origin-Opener-Policy": opener_policy,
        "Cache-Control": "no-store",
    }
