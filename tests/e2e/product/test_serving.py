"""What docs/how-to/serving.md prints works: the product behind nginx with TLS, Caddy's file, and a mail that is sent.

Only ports, the certificate and the mail server are the test's own.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings as django_settings

from tests.alerts.notify.mail_server import mail_server
from tests.conftest import missing_service
from tests.servers.processes import Process, answers, free_ports, wait_ready
from tests.servers.product import ROOT, start_product

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(900)]
PAGE = (ROOT / "docs" / "how-to" / "serving.md").read_text()
BLOCKS = [
    "".join(line[4:] for line in block.splitlines(True)) for block in re.findall(r"(?:^    .*\n)+", PAGE, re.MULTILINE)
]


def printed(begin: str) -> str:
    """The text of the page that begins so."""
    [block] = [block for block in BLOCKS if block.startswith(begin)]
    return block


def settings_of(begin: str) -> dict[str, str]:
    """The settings that the page prints there."""
    return dict(line.split("=", 1) for line in printed(begin).splitlines())


def needed(name: str) -> str:
    program = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        missing_service(f"{name} is not installed (Debian: apt-get install {name})")
    return program


@pytest.fixture
def nginx(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """nginx with the printed server; its port, and the one at which it expects the product."""
    program, (port, upstream) = needed("nginx"), free_ports(2)
    files = ["-keyout", str(tmp_path / "spm.key"), "-out", str(tmp_path / "spm.pem")]
    openssl = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=spm.example.org"]
    subprocess.run([*openssl, *files], check=True, capture_output=True)
    server = printed("server {").replace("/etc/ssl", str(tmp_path)).replace("127.0.0.1:8000", f"127.0.0.1:{upstream}")
    server = server.replace("listen 443", f"listen 127.0.0.1:{port}")
    paths = "".join(
        f"{each}_temp_path {tmp_path}/{each};" for each in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    head = f"daemon off; pid {tmp_path}/pid; error_log stderr error; events {{}}"
    config = f"{head} http {{ access_log off; {paths} {server} }}"
    (tmp_path / "nginx.conf").write_text(config)
    process = Process("nginx", tmp_path / "log")
    process.start([program, "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")], dict(os.environ))
    wait_ready(lambda: answers(port), [process], 30)
    yield port, upstream
    process.stop()


def test_people_reach_the_site_by_its_name_with_tls(nginx: tuple[int, int], tmp_path: Path) -> None:
    port, upstream = nginx
    environment = {**os.environ, **settings_of("SPM_BASE_URL=")}
    served = start_product(tmp_path / "data", environment=environment, port=upstream)
    try:
        resolve = ["--resolve", f"spm.example.org:{port}:127.0.0.1"]
        command = ["curl", "-skiS", *resolve, f"https://spm.example.org:{port}/login"]
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    finally:
        served.stop()
    assert re.match(r"HTTP/\S+ 200", answer)
    assert re.search(r"(?i)^set-cookie: csrftoken=.*; Secure", answer, re.MULTILINE)
    assert re.search(r"(?i)^strict-transport-security: max-age=", answer, re.MULTILINE)


def test_caddy_takes_the_printed_file(tmp_path: Path) -> None:
    (tmp_path / "Caddyfile").write_text(printed("spm.example.org {"))
    command = [
        needed("caddy"),
        "adapt",
        "--adapter",
        "caddyfile",
        "--config",
        str(tmp_path / "Caddyfile"),
        "--validate",
    ]
    done = subprocess.run(
        command, env={**os.environ, "HOME": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "reverse_proxy" in done.stdout


def test_a_mail_is_sent_by_the_printed_settings_and_command(tmp_path: Path) -> None:
    settings = settings_of("SPM_SMTP_URL=")
    with mail_server() as server:
        settings["SPM_SMTP_URL"] = f"smtp://127.0.0.1:{django_settings.EMAIL_PORT}"
        environment = {**os.environ, **settings, "SPM_DATA": str(tmp_path), "DJANGO_SETTINGS_MODULE": "spm.settings"}
        command = printed("bin/manage sendtestemail").split()
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    [(recipients, content)] = server.received
    assert recipients == ["you@example.org"]
    assert b"From: spm@example.org" in content
