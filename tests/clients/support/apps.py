"""New apps in a running product, each with a token that sends and reads."""

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import replace

from tests.servers.product import ROOT, Served

_SCRIPT = """
import json
from spm.accounts import tokens
from spm.accounts.models import App
org = App.objects.get(pk={app}).organisation
found = []
for most in {quotas}:
    app = App.objects.create(organisation=org, name=f"Of {{App.objects.count()}}", series_max=most, rate_max={rate_max})
    found.append((app.pk, tokens.issue(app, name="test", scopes={scopes})[1]))
print(json.dumps(found))
"""


def new_apps(
    served: Served,
    quotas: Sequence[int | None] = (None,),
    rate_max: int | None = None,
    scopes: Sequence[str] = ("ingest", "read"),
) -> list[Served]:
    """The product as seen with the tokens of new apps of its first organisation, one for each quota of series.

    ``rate_max``: of each, in samples a second; ``None`` for the setting's. ``scopes``: of each token.
    """
    environment = {**os.environ, "SPM_DATA": str(served.data), "DJANGO_SETTINGS_MODULE": "spm.settings"}
    code = _SCRIPT.format(app=served.app, quotas=list(quotas), rate_max=rate_max, scopes=tuple(scopes))
    command = [str(ROOT / "bin/manage"), "shell", "--no-imports", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout.splitlines()[-1])
    return [
        replace(served, app=app, token=token, headers={"Authorization": f"Bearer {token}"}) for app, token in result
    ]
