"""Settings mean what they say: the same in shell and Python, with the parameters of addresses, for every host name."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as live
from django.core.exceptions import ImproperlyConfigured
from django.test import Client
from dotenv import dotenv_values

from spm.cli.dotenv import read_dotenv
from spm.cli.options import parse
from spm.cli.supervisor import environment_of
from spm.settings.environment import database, mail_server, own_hosts

ROOT = Path(__file__).resolve().parents[3]
LINES = (
    "SPM_BIND=0.0.0.0",
    'SPM_BIND="0.0.0.0"',
    "SPM_BIND='0.0.0.0'",
    "export SPM_BIND=0.0.0.0",
    "  export   SPM_BIND = 0.0.0.0   ",
    "SPM_BIND=0.0.0.0 # all addresses",
    'SPM_BIND="0.0.0.0" # all addresses',
    "SPM_BIND='/srv/a b#c'",
    "SPM_BIND=/srv/a#b",
    "SPM_BIND=first\nSPM_BIND=last",
    "#SPM_BIND=none\nSPM_BIND_TOO=no",
    "SPM_BIND=",
    "SPM_BIND=\r\nSPM_X=1\r",
    "SPM_BIND=value\r",
    "SPM_BIND=a$HOME${HOME}$$",
)


@pytest.mark.parametrize("text", LINES)
def test_shell_and_python_read_a_line_of_dotenv_alike(tmp_path: Path, text: str) -> None:
    path = tmp_path / ".env"
    path.write_text(text + "\n", newline="")
    command = f'root={tmp_path}; . {ROOT}/bin/lib.sh; printf "<%s>" "$(setting SPM_BIND)"'
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SPM_")}
    shell = subprocess.run(["sh", "-c", command], env=environ, capture_output=True, text=True, check=True).stdout
    assert shell == f"<{dotenv_values(path, interpolate=False).get('SPM_BIND') or ''}>"


def test_the_address_of_dotenv_is_the_one_of_the_site_and_its_mails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text("export SPM_BASE_URL='https://monitor.example.org'\n")
    for name in ("SPM_BASE_URL", "SPM_DOTENV"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    assert environment_of(parse([], {}, tmp_path))["SPM_BASE_URL"] == "http://localhost:8000"
    read_dotenv(tmp_path)
    assert environment_of(parse([], {}, tmp_path))["SPM_BASE_URL"] == "https://monitor.example.org"
    assert "monitor.example.org" in own_hosts(os.environ["SPM_BASE_URL"])


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("postgres://u:p@db:5433/spm", {}),
        ("postgres://u:p@db/spm?sslmode=verify-full", {"sslmode": "verify-full"}),
        (
            "postgresql://u@db/spm?sslmode=require&sslrootcert=%2Fetc%2Fca.pem",
            {"sslmode": "require", "sslrootcert": "/etc/ca.pem"},
        ),
    ],
)
def test_parameters_of_a_database_address_reach_the_driver(url: str, options: dict[str, str]) -> None:
    assert database(url)["OPTIONS"] == options
    assert database(url)["NAME"] == "spm"


@pytest.mark.parametrize(
    ("url", "host", "port", "user", "password", "tls"),
    [
        ("smtp://mail", "mail", 25, "", "", ""),
        ("smtp://mail:587?tls=true", "mail", 587, "", "", "starttls"),
        ("smtps://a%40b:p%2Fq@mail", "mail", 465, "a@b", "p/q", "tls"),
        ("smtps://mail:8465", "mail", 8465, "", "", "tls"),
    ],
)
def test_the_address_of_a_mail_server_is_honoured(
    url: str, host: str, port: int, user: str, password: str, tls: str
) -> None:
    assert mail_server(url) == {
        "EMAIL_HOST": host,
        "EMAIL_PORT": port,
        "EMAIL_HOST_USER": user,
        "EMAIL_HOST_PASSWORD": password,
        "EMAIL_USE_SSL": tls == "tls",
        "EMAIL_USE_TLS": tls == "starttls",
    }


@pytest.mark.parametrize(
    "url",
    ["mail", "http://mail", "smtp://", "smtp://mail?ssl=true", "smtp://mail?tls=maybe", "smtp://u:secret@mail:port"],
)
def test_an_address_that_names_no_mail_server_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"SPM_SMTP_URL is .* Use smtp://user:password@host:25") as caught:
        mail_server(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("path", ["/login", "/api/v1/apps", "/prometheus/api/v1/labels"])
def test_a_refused_host_is_told_which_setting_admits_it(path: str, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["monitor.example.org"]
    answer = Client(headers={"host": "other.example.org"}).get(path)
    assert (answer.status_code, "SPM_ALLOWED_HOSTS" in answer.content.decode()) == (400, True)
    assert "other.example.org" not in answer.content.decode()


def test_the_products_own_programs_reach_it_whatever_hosts_are_named() -> None:
    assert {"localhost", "127.0.0.1", "[::1]"} <= set(live.ALLOWED_HOSTS)


@pytest.mark.parametrize(
    ("transport", "own", "expected"), [("direct", "", "0"), ("amqp", "", "20000"), ("direct", "7", "7")]
)
def test_hours_of_the_past_are_bounded_where_many_share_a_site(
    tmp_path: Path, transport: str, own: str, expected: str
) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SPM_")}
    environ |= {"SPM_DATA": str(tmp_path), "SPM_TRANSPORT": transport, "DJANGO_SETTINGS_MODULE": "spm.settings"}
    environ |= {"SPM_PEPPER": "p", "SPM_SECRET_KEY": "s"}
    environ |= {"SPM_APP_PAST_HOURS_MAX": own} if own else {}
    program = "from django.conf import settings; print(settings.SPM_APP_PAST_HOURS_MAX)"
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environ, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == expected
