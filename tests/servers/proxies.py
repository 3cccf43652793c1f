"""nginx and Caddy in front of a server, each a private one on loopback. Enter by ``start_proxy``."""

import os
import shutil
from pathlib import Path

from tests.servers.processes import Process, answers, free_ports, wait_ready

PROXIES = ("nginx", "caddy")
_READY_S = 60
_NGINX = """\
daemon off;
worker_processes 1;
worker_rlimit_nofile 20000;
pid {folder}/pid;
error_log stderr error;
events {{ worker_connections 9000; }}
http {{
  access_log off;
  client_max_body_size 0;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream site {{ server 127.0.0.1:{upstream}; keepalive 64; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://site;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $host;
      proxy_set_header X-Forwarded-For $remote_addr;
      proxy_set_header X-Forwarded-Proto $scheme;
      proxy_request_buffering {buffering};
    }}
  }}
}}
"""
_CADDY = """\
{{
  admin off
  auto_https off
  storage file_system {folder}/storage
}}
http://:{port} {{
  bind 127.0.0.1
  reverse_proxy 127.0.0.1:{upstream}
}}
"""


def missing_proxy(name: str) -> str:
    """Returns why a proxy cannot be started; empty if it can."""
    return "" if _program(name) else f"{name} is not installed (Debian: apt-get install {name})"


def start_proxy(name: str, folder: Path, upstream: int, *, buffering: bool = False) -> tuple[Process, int]:
    """Starts a proxy before the server at port ``upstream``; returns its process and port.

    nginx sends bodies on as they come, unless ``buffering``; Caddy always does.
    """
    [port] = free_ports(1)
    process = Process(name, folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "config"
    form, on = (_NGINX, "on" if buffering else "off") if name == "nginx" else (_CADDY, "")
    config.write_text(form.format(folder=folder, port=port, upstream=upstream, buffering=on))
    program = _program(name) or name
    words: list[str | Path]
    words = ["-p", folder, "-c", config] if name == "nginx" else ["run", "--adapter", "caddyfile", "--config", config]
    process.start([program, *words], {**os.environ, "HOME": str(folder)})
    wait_ready(lambda: answers(port), [process], _READY_S)
    return process, port


def _program(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))
