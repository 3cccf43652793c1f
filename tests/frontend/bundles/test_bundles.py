"""Bundles of scripts and styles: what is served is complete, the same each time, and light enough for every page."""

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.test import Client

from frontend.bundles import SCRIPTS, STYLES
from spm.settings.environment import BASE_DIR
from tests.frontend.bundles import built_files
from tests.support.people import Tenant, make_tenant

IMPORT = re.compile(r"""(?:\bfrom\s*|\bimport\s*\(?)["']\./([^"']+)["']""")
HASHED = re.compile(r"[\w-]+\.[0-9a-f]{12}\.js")
LOADED = re.compile(
    r'(?:<script type="module" src|<link rel="modulepreload" href|<link rel="stylesheet" href)="([^"]+)"'
)
TEMPLATES = [*(BASE_DIR / "frontend/templates").rglob("*.html"), *(BASE_DIR / "alerts/templates").rglob("*.html")]
SCRIPT_BYTES_MAX = {"charts": 65_000, "other": 35_000}  # compressed, of one page
STYLE_BYTES_MAX = 20_000
FILES_MAX = 7  # the page, its answer of charts and its icon make it ten


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of static files as they are served."""
    return built_files.collect(tmp_path_factory.mktemp("static"))


@pytest.fixture
def tenant(built: Path, db: None) -> Iterator[Tenant]:
    """An organisation, while pages name the built files."""
    with built_files.settings_of(built):
        yield make_tenant("alpha")


def test_scripts_import_each_other_by_names_with_a_hash(built: Path) -> None:
    scripts = [path for path in (built / "js").glob("*.js") if HASHED.fullmatch(path.name)]
    imported = [text for path in scripts for text in IMPORT.findall(path.read_text())]
    assert len(imported) > 10
    assert [text for text in imported if not HASHED.fullmatch(text) or not (built / "js" / text).is_file()] == []


@pytest.mark.parametrize("address", ["/admin/", "/admin/ingest/appdeadletters/", "/admin/auth/user/add/"])
def test_a_page_of_the_admin_names_only_files_that_were_collected(tenant: Tenant, client: Client, address: str) -> None:
    client.force_login(User.objects.create_superuser("ada"))
    assert client.get(address).status_code == 200


def test_the_same_files_give_the_same_bytes(built: Path, tmp_path: Path) -> None:
    again = built_files.collect(tmp_path / "again")
    ours = [path.relative_to(built) for path in built.rglob("*") if path.is_file() and path.suffix != ".gz"]
    assert len(ours) > 100
    assert [path for path in ours if (built / path).read_bytes() != (again / path).read_bytes()] == []


def test_what_is_served_is_small_and_names_its_source_apart(built: Path) -> None:
    script = next((built / "js").glob("explore.*.js")).read_text()
    assert len(script.splitlines()) < 10
    where = re.search(r"//# sourceMappingURL=(\S+)", script)
    assert where is not None
    assert "LETTERS" in (built / "js" / where[1]).read_text()
    styles = next((built / "css").glob("site.*.css")).read_text()
    assert "@import" not in styles
    assert "--pico-" in styles
    assert "Pico CSS" in styles  # its licence asks for its notice


def test_templates_load_what_is_bundled_and_nothing_else() -> None:
    text = "".join(path.read_text() for path in TEMPLATES)
    assert set(re.findall(r"\{% script 'js/(\w+)\.js' %\}", text)) == set(SCRIPTS)
    assert set(re.findall(r"\{% static '(\S+\.css)' %\}", text)) == set(STYLES)
    assert re.findall(r"\{% static '\S+\.js' %\}", text) == []


@pytest.mark.parametrize(
    ("address", "kind", "later"),
    [
        ("/apps/{app}/", "charts", ()),
        ("/apps/{app}/explore", "charts", ()),
        ("/apps/{app}/dashboards/ready/host-agent", "charts", ("figures", "cells")),
        ("/apps/{app}/hosts", "other", ()),
        ("/alerts/new", "other", ()),
        ("/alerts/", "other", ()),
        ("/help", "other", ()),
        ("/apps/{app}/add-data", "other", ()),
    ],
)
def test_a_page_is_light(
    address: str, kind: str, later: tuple[str, ...], tenant: Tenant, built: Path, client: Client
) -> None:
    client.force_login(tenant.owner)
    answer = client.get(address.format(app=tenant.app.pk))
    assert answer.status_code == 200
    names = [name.removeprefix("/static/") for name in LOADED.findall(answer.content.decode())]
    assert len(set(names)) == len(names)
    assert all((built / name).is_file() for name in names)
    names += [str(next((built / "js").glob(f"{name}-*.*.js")).relative_to(built)) for name in later]
    sizes = {name: len(gzip.compress((built / name).read_bytes(), 9)) for name in names}
    scripts = sum(size for name, size in sizes.items() if name.endswith(".js"))
    styles = sum(size for name, size in sizes.items() if name.endswith(".css"))
    assert scripts <= SCRIPT_BYTES_MAX[kind], sizes
    assert styles <= STYLE_BYTES_MAX, sizes
    assert len(names) - len(later) <= FILES_MAX, names


def test_a_page_asks_at_once_for_all_that_its_script_imports(tenant: Tenant, built: Path, client: Client) -> None:
    client.force_login(tenant.owner)
    text = client.get(f"/apps/{tenant.app.pk}/explore").content.decode()
    names = {name.rsplit("/", 1)[1] for name in LOADED.findall(text) if name.endswith(".js")}
    static = re.compile(r'(?:\bfrom|\bimport)\s*"\./([^"]+)"')
    imported = {each for name in names for each in static.findall((built / "js" / name).read_text())}
    assert len(imported) > 1
    assert imported <= names


def test_without_esbuild_the_message_says_what_to_do(tmp_path: Path, settings: object) -> None:
    settings.SPM_ROOT = tmp_path  # type: ignore[attr-defined]  # pytest-django's own wrapper
    with pytest.raises(ImproperlyConfigured, match=r"has no esbuild\. Run bin/manage once"):
        built_files.collect(tmp_path / "static")
