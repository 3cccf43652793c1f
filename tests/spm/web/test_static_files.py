"""Names of static files: a browser may keep every script for good, also those that another one imports."""

import re
import shutil
from pathlib import Path

from django.core.files.storage import FileSystemStorage

from spm.web.static_files import HashedStaticFiles

SCRIPTS = Path(__file__).parents[3] / "frontend" / "static" / "js"
IMPORT = re.compile(r"""(?:\bfrom\s*|\bimport\s*\(?)["']\./([^"']+)["']""")
HASHED = re.compile(r"\w+\.[0-9a-f]{12}\.js")


def test_scripts_import_each_other_by_names_with_a_hash(tmp_path: Path) -> None:
    shutil.copytree(SCRIPTS, tmp_path / "js")
    files = HashedStaticFiles(location=tmp_path, base_url="/static/")
    plain = FileSystemStorage(tmp_path)
    names = [f"js/{each.name}" for each in SCRIPTS.glob("*.js")]
    list(files.post_process({name: (plain, name) for name in names}))
    imported = [text for name in files.hashed_files.values() for text in IMPORT.findall((tmp_path / name).read_text())]
    assert len(imported) > 10
    assert [text for text in imported if not HASHED.fullmatch(text)] == []
